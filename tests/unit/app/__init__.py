"""Tests of the engine, the ledger and what they are made of."""

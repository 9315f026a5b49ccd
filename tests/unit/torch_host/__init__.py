"""Tests of torch as the host framework."""

"""The promise ledger, what serves it, and the worker's side."""

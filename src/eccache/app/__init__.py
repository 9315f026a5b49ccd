"""The engine, the promise ledger, configuration, the composition root and the host entry points."""

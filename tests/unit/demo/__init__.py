"""Tests of the demo's parts; the whole of it runs in `tests/e2e`."""

"""Conformance suites and state machines that the author of an adapter runs unchanged."""

"""Tests of host memory for bytes in flight."""

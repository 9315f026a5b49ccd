"""Tests of `eccache bench ttft`."""

"""Tests of the vLLM adapter, with vLLM's real configuration, request and scheduler classes."""

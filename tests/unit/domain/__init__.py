"""Tests of the pure rules: keys, names, identity, the entry format."""

"""Implementations of the ports, one package each, strangers to each other."""

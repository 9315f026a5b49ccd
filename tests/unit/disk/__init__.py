"""The native store."""

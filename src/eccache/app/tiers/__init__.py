"""Stores behind one another, and when a slow one is left alone."""

"""Real LMCache and Redis."""

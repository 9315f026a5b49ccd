"""Replays traces of mixed media: through the engine, and through policies of eviction in memory."""

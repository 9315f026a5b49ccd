"""LMCache's real storage manager, its disk, fs:// and a real Redis, behind eccache."""

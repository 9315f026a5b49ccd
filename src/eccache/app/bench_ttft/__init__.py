"""`eccache bench ttft`: time to first token of a real server, cold and after a restart."""

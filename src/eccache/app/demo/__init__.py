"""The `eccache demo` command: a real vLLM server, restarted, that answers from the cache."""

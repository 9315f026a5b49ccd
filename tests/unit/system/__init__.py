"""The operating system's files, mappings and memory."""

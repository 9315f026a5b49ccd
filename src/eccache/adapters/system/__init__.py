"""The operating system: clocks and files."""

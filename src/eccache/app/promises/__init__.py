"""The promise protocol: what a scheduler may count on, and the threads and copies behind it."""

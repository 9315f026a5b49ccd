"""The command line on a real store."""

"""One module at a time, without processes, servers or real frameworks."""

"""How costs grow: with the number of entries, of processes, and with the size of an entry."""

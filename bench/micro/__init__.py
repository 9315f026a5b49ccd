"""Every operation of the cache beside its peers, one table."""

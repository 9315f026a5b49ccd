"""Every operation of the cache beside its peers, one table."""

from bench.micro.run import GROUPS, measure

__all__ = ["GROUPS", "measure"]

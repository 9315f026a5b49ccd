"""The error tree.

```
ECCacheError               everything that eccache raises on purpose
├── ConfigError            ECC-CONFIG   wrong configuration: stops a start, with cause and remedy
├── ClosedError            ECC-CLOSED   get or put after close()
├── KeyFormatError         ECC-KEY      text that is not the text form of a key (also a ValueError)
└── StoreFault             ECC-STORE    a store could not do what it was asked to: costs a miss
    └── StoreTimeout       ECC-TIMEOUT  ... because its deadline passed
```

A correct program sees `ConfigError` only. `StoreFault` never leaves the engine: it is turned into a
counted miss at its boundary.
"""

from __future__ import annotations

from typing import ClassVar


class ECCacheError(Exception):
    """Base of every error that eccache raises on purpose.

    Args:
        cause: what is wrong, in words.
        remedy: what the reader can do about it; empty where nothing can be done.
    """

    code: ClassVar[str] = "ECC"

    def __init__(self, cause: str, *, remedy: str = "") -> None:
        self.cause = cause
        self.remedy = remedy
        super().__init__(f"[{self.code}] {cause}" + (f" Remedy: {remedy}" if remedy else ""))


class ConfigError(ECCacheError):
    """Wrong configuration, found at start."""

    code = "ECC-CONFIG"


class ClosedError(ECCacheError):
    """The cache was used after `close()`."""

    code = "ECC-CLOSED"


class KeyFormatError(ECCacheError, ValueError):
    """Text that is not the text form of an entry key."""

    code = "ECC-KEY"


class StoreFault(ECCacheError):  # noqa: N818 - a fault is what costs a miss, an error what a caller sees
    """A store could not do what it was asked to."""

    code = "ECC-STORE"


class StoreTimeout(StoreFault):
    """A store did not answer before its deadline."""

    code = "ECC-TIMEOUT"

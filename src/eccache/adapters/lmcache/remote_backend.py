"""One of LMCache's remote backends, asked in a way that tells a miss from a fault.

LMCache's own calls answer "no" where a connection is broken, and cancel what takes too long. Here the
connector's coroutines are called, which raise; see `LoopCalls`.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Final

from eccache.adapters.lmcache.buffers import copy_out, give_back
from eccache.domain.errors import StoreFault

if TYPE_CHECKING:
    from lmcache.utils import CacheEngineKey
    from lmcache.v1.memory_management import MemoryObj
    from lmcache.v1.storage_backend.remote_backend import RemoteBackend

    from eccache.adapters.lmcache.loop_calls import LoopCalls


_SECRETS: Final = re.compile(r"(?<=://)[^/\s@]*(?=@)|(?<=\?)\S+")
"""Of a URL that an error quotes: who may connect, and the options, where a password may be too."""


def innermost(connector: Any) -> Any:  # noqa: ANN401 - connectors share no public base in all versions
    """Return the connector that LMCache has wrapped, for metrics for instance."""
    while hasattr(connector, "getWrappedConnector"):
        connector = connector.getWrappedConnector()
    return connector


class RemoteBackendCalls:
    """Reads and writes frames of one remote backend. Any thread but the event loop's may call it.

    Args:
        name: LMCache's name of the backend.
        backend: the backend.
        calls: of the storage's event loop.
    """

    def __init__(self, name: str, backend: RemoteBackend, calls: LoopCalls) -> None:
        self.name = name
        self._backend = backend
        self._calls = calls
        self._reason = ""

    def contains(self, key: CacheEngineKey, timeout_seconds: float) -> bool:
        """Return whether there is something under *key*.

        Raises:
            StoreFault: it can't be told.
        """
        connection = self._connection()
        return bool(self._calls.call(lambda: connection.exists(key), timeout_seconds))

    def read(self, key: CacheEngineKey, timeout_seconds: float) -> memoryview | None:
        """Return a private copy of what is under *key*, or None.

        Raises:
            StoreFault: it is there, or may be, and could not be read.
        """
        connection = self._connection()
        found = self._calls.call(lambda: connection.get(key), timeout_seconds)
        if found is None:
            if self.contains(key, timeout_seconds):
                raise StoreFault(f"LMCache's {self.name} has the entry and did not deliver it")
            return None
        try:
            plain = self._backend.deserializer.deserialize(found)
        except Exception as error:
            give_back(found)
            raise StoreFault(f"LMCache could not decode a value: {error}") from error
        try:
            return copy_out(plain)
        finally:
            give_back(plain)

    def write(self, key: CacheEngineKey, buffer: MemoryObj, timeout_seconds: float) -> None:
        """Store *buffer* under *key*, over what is there. The caller keeps its reference.

        Raises:
            StoreFault: it is not stored.
        """
        self._connection()
        if self._backend.exists_in_put_tasks(key):
            raise StoreFault("an earlier write of this entry is still under way")
        self._calls.result_of(self._backend.submit_put_task(key, buffer), timeout_seconds)

    def remove(self, key: CacheEngineKey, timeout_seconds: float) -> bool:
        """Remove what is under *key*; True if there was something.

        Raises:
            StoreFault: it could not be removed, or the connector can't remove at all.
        """
        if not self.contains(key, timeout_seconds):
            return False
        connector = innermost(self._connection())
        try:
            return bool(connector.remove_sync(key))
        except NotImplementedError:
            pass
        client: Any = getattr(connector, "connection", None)
        if not hasattr(client, "delete"):
            raise StoreFault(f"LMCache's {type(connector).__name__} can't remove entries")
        # Two names an entry, as the Redis connectors have it; first the one that is looked up.
        for part in ("metadata", "kv_bytes"):
            name = key.to_string() + part
            self._calls.call(functools.partial(client.delete, name), timeout_seconds)
        return True

    def _connection(self) -> Any:  # noqa: ANN401 - as `innermost`
        if self._backend.connection is None:
            self._backend.init_connection()  # at the most every 10 seconds, by itself
        if self._backend.connection is None:
            self._reason = self._reason or self._why_not()
        if self._backend.connection is None:
            raise StoreFault(f"LMCache's {self.name} is not connected: {self._reason}")
        return self._backend.connection

    def _why_not(self) -> str:
        """Connect once more for the reason, which LMCache tells its log alone; here it is told once."""
        from lmcache.v1.storage_backend.connector import CreateConnector

        backend = self._backend
        plugin: Any = getattr(backend, "plugin_name", None)
        named = {} if plugin is None else {"plugin_name": plugin}
        try:
            backend.connection = CreateConnector(
                backend.remote_url,
                backend.loop,
                backend.local_cpu_backend,
                backend.config,
                backend.metadata,
                **named,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
            return f"{type(error).__name__}: {_SECRETS.sub('***', str(error))}"
        return "it is now"

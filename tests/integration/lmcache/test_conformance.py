"""A store on LMCache does what an entry store does, whatever stands behind LMCache."""

from __future__ import annotations

from pathlib import Path

import pytest

from eccache.ports.storage import EntryStore
from eccache.testing.store_conformance import EntryStoreConformance
from tests.integration.lmcache.redis_server import RedisServer
from tests.integration.lmcache.stores import open_store


class TestMemory(EntryStoreConformance):
    """LMCache's host memory."""

    def make_store(self, place: Path, capacity_nbytes: int) -> EntryStore:
        """Return a store in LMCache's memory."""
        return open_store(local_cpu=True)


class TestDisk(EntryStoreConformance):
    """LMCache's disk alone; its memory is where bytes pass through."""

    def make_store(self, place: Path, capacity_nbytes: int) -> EntryStore:
        """Return a store on LMCache's disk."""
        return open_store(local_disk=str(place), max_local_disk_size=1)


class TestMemoryAndDisk(EntryStoreConformance):
    """Both, as LMCache's guide has it."""

    def make_store(self, place: Path, capacity_nbytes: int) -> EntryStore:
        """Return a store in LMCache's memory and on its disk."""
        return open_store(local_cpu=True, local_disk=f"file://{place}", max_local_disk_size=1)


class TestFileSystem(EntryStoreConformance):
    """A folder that several hosts mount, `fs://`."""

    def make_store(self, place: Path, capacity_nbytes: int) -> EntryStore:
        """Return a store in a shared folder."""
        return open_store(remote_url=f"fs://host:0{place}/")


class TestRedis(EntryStoreConformance):
    """A real Redis."""

    @pytest.fixture(autouse=True)
    def _redis(self, redis_server: RedisServer) -> None:
        self._url = redis_server.url

    def make_store(self, place: Path, capacity_nbytes: int) -> EntryStore:
        """Return a store in Redis."""
        return open_store(remote_url=self._url)


class TestMemoryAndRedis(EntryStoreConformance):
    """A real Redis behind LMCache's memory."""

    @pytest.fixture(autouse=True)
    def _redis(self, redis_server: RedisServer) -> None:
        self._url = redis_server.url

    def make_store(self, place: Path, capacity_nbytes: int) -> EntryStore:
        """Return a store in LMCache's memory and in Redis."""
        return open_store(local_cpu=True, remote_url=self._url)

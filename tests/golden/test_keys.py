"""Keys equal those of LMCache, and those that eccache wrote ever since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eccache.domain.dtypes import DTYPES
from eccache.domain.key import EntryKey, stable_u64

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "golden_keys.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda vector: vector["key"][-30:])
def test_a_key_is_the_one_that_lmcache_computes(vector: dict[str, str]) -> None:
    """Both systems name one encoder output alike."""
    assert vector["u64"] == str(stable_u64(vector["mm_hash"]))
    key = EntryKey.for_mm_hash(vector["model"], vector["mm_hash"], vector["torch_dtype"])
    assert vector["key"] == key.to_string()
    assert key == EntryKey.from_string(vector["key"])


def test_dtypes_have_lmcaches_names_where_it_knows_them() -> None:
    """The rest have names that LMCache uses for nothing else."""
    assert VECTORS["dtype_names"] == {
        name: dtype.key_name for name, dtype in DTYPES.items() if name in VECTORS["dtype_names"]
    }
    others = {
        dtype.key_name for name, dtype in DTYPES.items() if name not in VECTORS["dtype_names"]
    }
    assert set() == others & set(VECTORS["dtype_names"].values())


def test_the_vectors_are_there() -> None:
    """An empty file would prove nothing."""
    assert "computed with lmcache 0.5.6" == VECTORS["source"]
    assert 6 == len(VECTORS["keys"])
    assert 14 == len(VECTORS["dtype_names"])

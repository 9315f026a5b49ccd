"""The element types an entry can have, under the three names they go by.

A dtype has the name torch gives it (canonical here), the short name LMCache writes into keys, and
the tag safetensors writes into files. The second column equals LMCache 0.5.6 where LMCache knows the
dtype; elsewhere it is the torch name, which LMCache uses for no other dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs


@attrs.frozen
class DType:
    """One element type.

    Attributes:
        name: torch's name without the `torch.` prefix, e.g. `"bfloat16"`.
        key_name: the name in a key's text form, e.g. `"half"` for float16.
        safetensors_tag: the tag in a safetensors header, e.g. `"BF16"`.
        itemsize: bytes per element as torch counts elements.
        values_per_element: numbers packed in one element; safetensors counts numbers, torch elements.
    """

    name: str
    key_name: str
    safetensors_tag: str
    itemsize: int
    values_per_element: int = 1


_ALL = (
    DType("float16", "half", "F16", 2),
    DType("bfloat16", "bfloat16", "BF16", 2),
    DType("float32", "float", "F32", 4),
    DType("float64", "double", "F64", 8),
    DType("int8", "int8", "I8", 1),
    DType("uint8", "uint8", "U8", 1),
    DType("int16", "int16", "I16", 2),
    DType("int32", "int32", "I32", 4),
    DType("int64", "int64", "I64", 8),
    DType("bool", "bool", "BOOL", 1),
    DType("float8_e4m3fn", "fp8_e4m3fn", "F8_E4M3", 1),
    DType("float8_e4m3fnuz", "fp8_e4m3fnuz", "F8_E4M3FNUZ", 1),
    DType("float8_e5m2", "fp8_e5m2", "F8_E5M2", 1),
    DType("float8_e5m2fnuz", "fp8_e5m2fnuz", "F8_E5M2FNUZ", 1),
    DType("uint16", "uint16", "U16", 2),
    DType("uint32", "uint32", "U32", 4),
    DType("uint64", "uint64", "U64", 8),
    DType("complex64", "complex64", "C64", 8),
    DType("float8_e8m0fnu", "float8_e8m0fnu", "F8_E8M0", 1),
    DType("float4_e2m1fn_x2", "float4_e2m1fn_x2", "F4", 1, 2),
)

DTYPES: Mapping[str, DType] = MappingProxyType({dtype.name: dtype for dtype in _ALL})
"""Every dtype by its canonical (torch) name."""

_BY_KEY_NAME: Mapping[str, DType] = MappingProxyType({dtype.key_name: dtype for dtype in _ALL})


def find_dtype(name: object) -> DType:
    """Return the dtype that *name* means.

    Args:
        name: torch's name with or without `torch.`, LMCache's name, or anything whose `str()` is
            one of these, such as a `torch.dtype`.

    Raises:
        ValueError: no such dtype; the message lists those that exist.
    """
    text = str(name).removeprefix("torch.")
    found = DTYPES.get(text) or _BY_KEY_NAME.get(text)
    if found is None:
        msg = f"unknown dtype {text[:80]!r}; known are {', '.join(sorted(DTYPES))}"
        raise ValueError(msg)
    return found


def canonical_dtype(name: object) -> str:
    """Return torch's name of the dtype that *name* means; see `find_dtype`."""
    if name.__class__ is str and name in DTYPES:  # as nearly always
        return name
    return find_dtype(name).name

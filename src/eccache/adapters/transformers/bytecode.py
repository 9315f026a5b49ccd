"""What a compiled function does, as text that two processes write alike."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from types import CodeType


def code_digest(code: CodeType) -> str:
    """Return the SHA-256 of what *code* does, in hex: not of where it was written or what it is called.

    Instructions differ between Python's feature releases.
    """
    return hashlib.sha256(_written(code).encode()).hexdigest()


def code_names(code: CodeType) -> Iterator[str]:
    """Yield the names that *code* looks up in modules and on objects, those of inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_names(constant)


def _written(constant: object) -> str:
    if isinstance(constant, CodeType):
        parts = (
            constant.co_code.hex(),
            constant.co_exceptiontable.hex(),
            (constant.co_argcount, constant.co_posonlyargcount, constant.co_kwonlyargcount),
            constant.co_flags,
            constant.co_names,
            constant.co_varnames,
            constant.co_freevars,
            constant.co_cellvars,
        )
        inner = ",".join(_written(one) for one in constant.co_consts)
        return f"code({parts!r},{inner})"
    if isinstance(constant, tuple):
        return f"({','.join(_written(one) for one in constant)})"
    if isinstance(constant, frozenset):  # texts come in another order in every process
        return f"{{{','.join(sorted(_written(one) for one in constant))}}}"
    return repr(constant)

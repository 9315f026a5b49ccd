"""Text as the outside gives it: any characters, lone surrogates included."""

from __future__ import annotations

import hypothesis.strategies as st

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=400)
"""Any str at all."""

HARD_TEXT = st.sampled_from(
    [
        "",
        ".",
        "..",
        "../../etc/passwd",
        "/absolute",
        "a/b",
        "a\\b",
        "a\0b",
        "a\nb",
        "%2E",
        "%",
        "~",
        "a~b",
        "@",
        "a@1@0@ff@half",
        "\ud800",
        "\ud83d\ude00",
        "😀",
        "\u00e9",
        "e\u0301",
        "A" * 300,
        "é" * 300,
        "con",
        " ",
    ]
)
"""Text that has broken caches."""

NAMES = (ANY_TEXT | HARD_TEXT).filter(bool)
"""Model names: any text that is not empty."""

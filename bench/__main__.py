"""`python -m bench`: without a command the table of everything that has a target."""

from __future__ import annotations

from bench.cli import main

main()

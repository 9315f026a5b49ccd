"""The `eccache` command."""

from eccache.app.cli.group import main

__all__ = ["main"]

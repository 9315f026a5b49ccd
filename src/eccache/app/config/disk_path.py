"""The value of `local_disk`: a path or a `file://` URL becomes an absolute path."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from eccache.app.config.rules import refusal

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SEVERAL = re.compile(r",\s*(?=/|~|file://)", re.IGNORECASE)
_NAME = "local_disk"
_EXAMPLE = "/var/cache/ec or file:///var/cache/ec"


def split_paths(text: str) -> list[str]:
    """Return the paths that *text* lists. LMCache takes several, separated by commas."""
    return [part for part in map(str.strip, _SEVERAL.split(text)) if part]


def absolute_directory(value: object) -> str | None:
    """Return the absolute path that *value* means; None for None and for empty text.

    `~` is expanded. A relative path is taken from the current directory now, so that a later change
    of directory moves nothing. A `file://` URL is percent-decoded.

    Raises:
        ConfigError: another kind of URL, several paths, an unknown user, or no path at all.
    """
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise refusal(_NAME, value, "is no path", f"write a path such as {_EXAMPLE}.")
    path = os.fsdecode(value).strip()
    if not path:
        return None
    if len(split_paths(path)) > 1:
        raise refusal(
            _NAME, value, "names several directories", "name one; eccache has one root a host."
        )
    if _SCHEME.match(path):
        path = _path_of_url(path)
    if "\0" in path:
        raise refusal(_NAME, value, "has a NUL character", f"write a path such as {_EXAMPLE}.")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise refusal(
            _NAME, value, "has a character that no path has", f"write a path such as {_EXAMPLE}."
        ) from error
    expanded = os.path.expanduser(path)  # noqa: PTH111 - pathlib raises RuntimeError for an unknown user
    if expanded.startswith("~"):
        raise refusal(_NAME, value, "names an unknown user's home", "write the path out.")
    return os.path.abspath(expanded)  # noqa: PTH100 - pathlib would resolve no `..`


def _path_of_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme.lower() != "file":
        raise refusal(
            _NAME,
            url,
            "is no file:// URL",
            f"write a path such as {_EXAMPLE}; a remote store is named by remote_url.",
        )
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise refusal(
            _NAME,
            url,
            "does not name an absolute path",
            "write three slashes: file:///var/cache/ec.",
        )
    if parts.query or parts.fragment:
        raise refusal(_NAME, url, "has a query or a fragment", "write ? as %3F and # as %23.")
    return unquote(parts.path)

"""Keys of data files, whatever the format."""

from __future__ import annotations

import re

__all__ = ["file_key"]

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]*:/")


def file_key(location: str, path: str) -> str:
    """The key of a data file, given its decoded path: relative to the table, or absolute."""
    return path if _ABSOLUTE.match(path) else f"{location}/{path}"

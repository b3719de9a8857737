"""Names in a Delta log: keys of log objects, and paths of data files as URIs.

A path in the log is a percent-encoded URI (RFC 2396). The library works with
decoded paths, which are the store's keys. Writers differ in what they encode
(Spark leaves letters beyond ASCII alone, delta-rs does not) and some readers
match a ``remove`` with its ``add`` by spelling, so a path that would not be
spelt the same again travels with its first spelling. Absolute ones are spelt in
several ways even within one log: here each has one (``file:///``, ``s3://``).
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

# What delta-rs and Spark both leave as it is, besides letters, digits and "_.-~".
_SAFE = "!$&'()*+,/:;=@"
_NEEDS_ENCODING = re.compile(r"[^A-Za-z0-9_.\-~!$&'()*+,/:;=@]")

#: How absolute paths begin that are known by another spelling.
RESPELT = {"file:///": "file:///", "file:/": "file:///", "/": "file:///", "s3a://": "s3://",
           "s3n://": "s3://"}  # fmt: skip


def log_directory(location: str) -> str:
    """The directory of a table's log."""
    return f"{location}/_delta_log"


def entry_key(location: str, version: int) -> str:
    """The key of a log entry."""
    return f"{location}/_delta_log/{version:020}.json"


def decode_path(raw: str) -> str:
    """A path as the store knows it. Raises ``ValueError`` on bytes that are no UTF-8."""
    path = unquote(raw, errors="strict") if "%" in raw else raw
    for start, known in RESPELT.items():
        if path.startswith(start):
            return known + path.removeprefix(start)
    return path


def encode_path(path: str) -> str:
    """A path as the log spells it."""
    return quote(path, safe=_SAFE) if _NEEDS_ENCODING.search(path) else path


def raw_spelling(raw: str, path: str) -> str | None:
    """``raw`` if ``encode_path`` would spell the decoded ``path`` in another way."""
    return None if encode_path(path) == raw else raw

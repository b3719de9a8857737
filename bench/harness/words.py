"""Numbers in words, for figures and messages."""

from __future__ import annotations


def plural(count: object, what: str) -> str:
    """So many of something: ``1 client``, ``8 clients``."""
    return f"{count} {what}{'' if count == 1 else 's'}"

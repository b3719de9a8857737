"""Numbers among a table's properties."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["whole_number"]

_MOST = 2**63 - 1


def whole_number(properties: Mapping[str, str], name: str, default: int) -> int:
    """A property's value, at most what 64 bits hold; the default where it is unset or no number."""
    text = properties.get(name, "")
    if not (text.isascii() and text.isdigit()):
        return default
    return min(int(text), _MOST) if len(text) <= len(str(_MOST)) else _MOST

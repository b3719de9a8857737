"""Numbers among a table's properties."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["whole_number"]


def whole_number(properties: Mapping[str, str], name: str, default: int) -> int:
    """A property's value; the default where it is unset, or no number."""
    text = properties.get(name, "")
    return int(text) if text.isdigit() else default

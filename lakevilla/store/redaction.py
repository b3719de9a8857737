"""Texts of others, such as errors, without the values that they repeat."""

from __future__ import annotations

from collections.abc import Iterable

#: Shorter values are switches, names and numbers, which stand in other words too.
_LEAST_LENGTH = 6


def without(text: str, values: Iterable[tuple[str, str]]) -> str:
    """Return a text with each value replaced by the words for it, the longest value first."""
    for value, words in sorted(values, key=lambda one: -len(one[0])):
        if len(value) >= _LEAST_LENGTH:
            text = text.replace(value, f"({words})")
    return text

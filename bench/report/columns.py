"""The columns of a table that say something."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def telling(
    head: Sequence[str], rows: Iterable[Sequence[str]], nothing: Collection[str] = ("",)
) -> list[list[str]]:
    """The head and the rows, without the columns that have ``nothing`` in each row."""
    lines = [list(row) for row in rows]
    kept = [i for i in range(len(head)) if any(line[i] not in nothing for line in lines)]
    return [[line[i] for i in kept] for line in (head, *lines)]

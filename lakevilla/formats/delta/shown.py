"""The place of files that show states of a Delta table to clients of Iceberg.

The directory is below the table's, so that whoever may read the table may read them, and hidden, so
that Delta's clients pass over it. All that is in it can be made again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_DIRECTORY = "_lakevilla/iceberg"
_STATE = ".metadata.json"
_SHOWN = re.compile(rf"({_DIRECTORY}/\d+)/[^/]+(?:{re.escape(_STATE)}|\.avro|\.puffin)")


def shown_directory(location: str, period: int) -> str:
    """Return the directory of the states that are shown in a period."""
    return f"{location}/{_DIRECTORY}/{period}"


def is_shown(path: str) -> bool:
    """Return whether a file is of a shown state, by its path relative to the table."""
    return _SHOWN.fullmatch(path) is not None


def states_beside(deleted: Iterable[str], paths: Iterable[str]) -> set[str]:
    """Return those of ``paths`` that show states of which other files are ``deleted``.

    A gateway makes a state again if its metadata is gone, and otherwise relies on the rest.
    """
    directories = {found[1] for path in deleted if (found := _SHOWN.fullmatch(path))}
    return {
        path
        for path in paths
        if path.endswith(_STATE)
        and (found := _SHOWN.fullmatch(path)) is not None
        and found[1] in directories
    }

"""The place of files that show states of a Delta table to clients of Iceberg.

The directory is below the table's, so that whoever may read the table may read them, and hidden, so
that Delta's clients pass over it. All that is in it can be made again.
"""

from __future__ import annotations

import re

_DIRECTORY = "_lakevilla/iceberg"
_SHOWN = re.compile(rf"{_DIRECTORY}/\d+/[^/]+\.(?:metadata\.json|avro|puffin)")


def shown_directory(location: str, period: int) -> str:
    """Return the directory of the states that are shown in a period."""
    return f"{location}/{_DIRECTORY}/{period}"


def is_shown(path: str) -> bool:
    """Return whether a file is of a shown state, by its path relative to the table."""
    return _SHOWN.fullmatch(path) is not None

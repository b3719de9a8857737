"""Tables that lie inside another table's directory.

Delta allows it, so they are found in the wild, and a list of the outer one's files
shows theirs as well. No log of the outer one names them: whoever cleans up must not
take them for its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lakevilla.global_log.head import Head
from lakevilla.lake.tables.dropped import is_emptied

#: What follows the directory of a table in the keys of its log, or of its metadata.
LOG = re.compile(r"/(?:_delta_log/|metadata/[^/]+\.metadata\.json$|metadata/version-hint\.text$)")


def nested_tables(location: str, keys: Iterable[str], head: Head | None) -> tuple[str, ...]:
    """The tables inside the one at ``location``: those with a log among ``keys``, and HEAD's.

    HEAD's, dropped ones too: one that is decided may have no log yet, and the data
    of one that was dropped stays.
    """
    inside = f"{location}/"
    found = [(key, LOG.search(key, len(inside))) for key in keys if key.startswith(inside)]
    inner = {key[: match.start()] for key, match in found if match is not None}
    inner |= set() if head is None else set(head.tables)
    return tuple(sorted(one for one in inner if one.startswith(inside)))


def inner_tables(location: str, head: Head | None) -> list[str]:
    """The tables of HEAD inside ``location``, also dropped ones whose data stays."""
    tables = {} if head is None else head.tables.at_hand()
    return sorted(
        one
        for one, state in tables.items()
        if one.startswith(f"{location}/") and not is_emptied(state)
    )


def is_within(key: str, tables: tuple[str, ...]) -> bool:
    """Whether an object lies in the directory of one of the tables."""
    return key.startswith(tuple(f"{table}/" for table in tables))


def outer_paths(location: str) -> list[str]:
    """The directories that a table lies in, the innermost first; the last of a URI is a bucket."""
    scheme, store, path = location.rpartition("://")
    paths = []
    while "/" in path:
        path = path.rpartition("/")[0]
        paths.append(f"{scheme}{store}{path}")
    return paths


def outer_table(location: str, head: Head | None) -> str | None:
    """The table in whose directory ``location`` lies, if HEAD has one; its leaves are loaded."""
    for path in outer_paths(location):
        state = None if head is None else head.tables.get(path)
        if state is not None and not state.dropped:
            return path
    return None

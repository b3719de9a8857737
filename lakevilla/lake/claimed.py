"""Tables that were a lake's of this root, where nothing else of that lake is left.

With ``_lakevilla`` gone a root looks like a new one. But each table of a lake says whose it is, so
before the first HEAD is made there, or somebody is told that there is no lake, the directories are
walked once (docs/design/0053-gone-back.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from lakevilla.errors import CorruptObject, UnsupportedFormat
from lakevilla.global_log.repo import LakeFile, claim_of
from lakevilla.store.effects import Program, list_names, parallel

#: Directories asked for in one round.
_AT_ONCE = 256
#: What the directory of a table has.
_LOGS = frozenset({"_delta_log/", "metadata/"})


def find_claimed(root: str) -> Program[tuple[str, LakeFile] | None]:
    """A table below the root that a lake of this very root has claimed; None if there is none.

    Nothing is listed below a table. It ends with the first that is found.
    """
    level = [""]
    while level:
        wanted, level = level, []
        for first in range(0, len(wanted), _AT_ONCE):
            places = wanted[first : first + _AT_ONCE]
            listed = yield from parallel([list_names(place) for place in places])
            names = dict(zip(places, listed, strict=True))
            tables = [place for place in places if place and "_lakevilla/" in names[place]]
            claims = yield from parallel([_claim(place) for place in tables])
            for place, claim in zip(tables, claims, strict=True):
                if claim is not None and claim.root == root:
                    return place, claim
            for place in places:
                if not place or not _LOGS.intersection(names[place]):
                    level += _directories(place, names[place])
    return None


def _directories(parent: str, names: Sequence[str]) -> list[str]:
    """The directories in which tables may lie: not hidden ones, and no partitions of files."""
    return [
        f"{parent}/{name[:-1]}" if parent else name[:-1]
        for name in names
        if name.endswith("/") and name[0] not in "_." and "=" not in name
    ]


def _claim(location: str) -> Program[LakeFile | None]:
    try:
        return (yield from claim_of(location))
    except (CorruptObject, UnsupportedFormat):
        return None

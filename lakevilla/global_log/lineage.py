"""Lineage: a HEAD that a client reads comes from every HEAD that it has read before.

HEAD is only ever replaced by its successor, so whoever has seen one and then finds an
older one, or one that has grown from an older one, looks at a HEAD that was put back by
hand. To go on with it would give sequences away a second time: the tables' logs hold them
as published already, and rows that were acknowledged would be lost.
"""

from __future__ import annotations

from lakevilla.errors import CorruptObject
from lakevilla.global_log.head import HEAD_KEY, Head

#: What to do about a HEAD that is an older one, in words.
NEWEST = (
    "restore the newest copy of it (from the bucket's older versions, or a backup); if there is "
    "none, `lakevilla recover ROOT --reset-head N` goes on from HEAD number N, this one or another "
    "that is kept, and `--rebuild-head --force` makes it anew from the tables"
)


def went_back(
    head: Head, evidence: str, *, before: str = "", table: str | None = None
) -> CorruptObject:
    """The error of one who holds a HEAD that something shows to be an older one."""
    return CorruptObject(
        f"{before}{HEAD_KEY} (global version {head.sequence}, replacement {head.replacement}) was "
        f"set back, as by an old backup: {evidence}; {NEWEST}",
        key=HEAD_KEY,
        table=table,
    )


def check_lineage(known: Head, found: Head | None) -> None:
    """Refuse what can't have come from ``known``.

    ``found`` must have been asked for after ``known`` was read: an answer that another
    request has overtaken is old and nothing worse.

    Raises
    ------
    CorruptObject
        HEAD is gone, is older, or has another past. A lake of another id is another lake
        (one that was adopted, or created again), and no business of this.
    """
    if found is None:
        raise CorruptObject(
            f"{HEAD_KEY} is missing, and this client has seen global version {known.sequence} of "
            f"lake {known.lake_id}: restore the newest copy, or rebuild it with "
            "`lakevilla recover ROOT --rebuild-head`; if the lake was removed on "
            "purpose, connect again",
            key=HEAD_KEY,
        )
    if found.lake_id != known.lake_id:
        return
    if found.replacement < known.replacement or not _holds(found, known):
        raise CorruptObject(
            f"{HEAD_KEY} shows global version {found.sequence} (replacement {found.replacement}), "
            f"and this client has seen version {known.sequence} (replacement {known.replacement}): "
            f"HEAD was set back, as by an old backup; {NEWEST}",
            key=HEAD_KEY,
        )


def _holds(found: Head, known: Head) -> bool:
    """Whether the last commit that ``known`` holds is in ``found`` too, as far as that shows."""
    if found.replacement == known.replacement:
        return found.nonce == known.nonce
    if not known.commits or not found.commits:
        return True
    last = known.commits[-1]
    place = last.sequence - found.commits[0].sequence
    if place < 0:
        return True  # it has moved to a page
    return place < len(found.commits) and found.commits[place] == last

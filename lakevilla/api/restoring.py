"""Make a lake again from a backup."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from lakevilla.api.arguments import check_flag
from lakevilla.api.backup import restore_from
from lakevilla.api.border import at_border
from lakevilla.api.connecting import connect
from lakevilla.results import Report
from lakevilla.settings import Settings

__all__ = ["restore"]


@at_border
def restore(
    backup: str | os.PathLike[str],
    root: str | os.PathLike[str],
    *,
    name: str | None = None,
    in_place: bool = False,
    verify: Literal["sizes", "hashes"] = "sizes",
    storage_options: Mapping[str, object] | None = None,
    settings: Settings | None = None,
    boto3_session: object | None = None,
) -> Report:
    """Make the lake of a backup at an empty root, or set the lake at the root back to it.

    The lake at the root gets a new id, and every client of an earlier lake there is refused. Its
    HEAD is to be confirmed, as after a rebuild: until ``recover(confirm_head=True)``, ``gc`` and
    ``vacuum`` delete nothing, and an idempotency key that may have been used before raises
    ``CommitOutcomeUnknown``. A restore that was interrupted goes on if it is called again.

    Parameters
    ----------
    backup : str or os.PathLike
        The directory that ``Lake.backup`` has filled, in the store of the root.
    root : str or os.PathLike
        The root of the lake to be.
    name : str, optional
        The name of a backup in that directory, ``Backup.name``; the newest one if not given.
    in_place : bool
        Restore over what is left of a lake. Each table gets a new version with the state of the
        backup, or is created if its log is gone; nothing is deleted: tables that are not in the
        backup stay, as do the logs, and tags and branches that exist.
    verify : {"sizes", "hashes"}
        Check the files of the backup by their sizes, or also by their hashes, before anything is
        written.
    storage_options, settings, boto3_session
        As for ``connect``.

    Returns
    -------
    Report
        What is to be known: tables that are not in the backup, refs that stay.

    Raises
    ------
    InvalidOperation
        There is no such backup, or the root is not empty; another client has begun to restore
        there; or HEAD is a log there, or would be. Nothing is written then.
    CorruptObject
        An object of the backup is missing or was damaged, and nothing was written; or a copy of
        one in the root is not whole: restore again.

    Examples
    --------
    >>> _ = lake.backup("backups")
    >>> lv.restore("backups", "restored").ok
    True
    >>> lv.connect("restored").recover(confirm_head=True).ok
    True
    >>> [table.name for table in lv.connect("restored").tables()]
    ['orders', 'stock']
    """
    check_flag("in_place", in_place)
    lake = connect(
        root, storage_options=storage_options, settings=settings, boto3_session=boto3_session
    )
    with lake:
        return restore_from(lake._client, backup, name, in_place=in_place, verify=verify)

"""A transaction that is bound to a past state of the lake, for good."""

from __future__ import annotations

from lakevilla.errors import VersionNotFound
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.repo import HeldHead
from lakevilla.lake.context import Context
from lakevilla.lake.past import Past, not_kept, past_at
from lakevilla.lake.view import View
from lakevilla.store.base import Missing, ObjectInfo
from lakevilla.store.effects import Head as HeadOf
from lakevilla.store.effects import Program, parallel
from lakevilla.transaction.state.transaction import Transaction


def bind_to_past(
    txn: Transaction, *, version: int | None = None, timestamp_ms: int | None = None
) -> Program[None]:
    """Bind a transaction that only reads to a global version, or to the newest at a time.

    Raises
    ------
    VersionNotFound
    """
    context = txn.context
    held = yield from context.head()
    if held is None:
        raise VersionNotFound(
            "the lake has no global version yet: its first transaction makes one; "
            "ask for no version to see the tables as they are"
        )
    timeline = Timeline.of(held.head)
    if timestamp_ms is not None:
        version = yield from timeline.by(timestamp_ms)
    assert version is not None
    past = yield from past_at(timeline, version)
    txn.past = past
    txn.held = HeldHead(past.head, held.token)
    txn.bound_sequence = txn.began = past.sequence
    txn.bound = True


def refuse_missing_files(context: Context, past: Past, location: str, view: View) -> Program[None]:
    """Say so if data files of a past state are gone: VACUUM, or gc of what was replaced.

    Asked after a read has failed, so that one that succeeds costs no requests.
    """
    files = yield from view.snapshot.files()
    keys = [
        path if "://" in path else f"{location}/{path}" for path in files.column("path").to_pylist()
    ]
    infos: list[ObjectInfo | Missing] = yield from parallel([HeadOf(key) for key in keys])
    for key, info in zip(keys, infos, strict=True):
        if isinstance(info, Missing):
            raise not_kept(past, location, f"data file {key} was removed")

"""Planted bugs of clean-ups by a HEAD that was set back (docs/design/0053-gone-back.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakevilla.lake import newer
from lakevilla.store.effects import Program
from lakevilla_testing.planted.bugs import attribute, instead, nothing, planted


@planted(for_histories=False)
def old_head_is_believed() -> Iterator[None]:
    """A client that deletes takes the present HEAD for the newest, whatever other objects show."""

    def refuse_older_head(*_: Any, **__: Any) -> Program[newer.Signs]:
        yield from ()
        return newer.Signs()

    with (
        instead(newer.refuse_older_head, refuse_older_head),
        instead(newer.refuse_newer_logs, nothing),
        instead(newer.refuse_older, nothing),
    ):
        yield


@planted(for_histories=False)
def next_number_is_nobodys() -> Iterator[None]:
    """Objects that were stored for the next HEAD are taken for leftovers of a dead maker."""

    def to_come(*_: Any) -> None:
        return None

    with attribute(newer.Signs, "to_come", to_come):
        yield

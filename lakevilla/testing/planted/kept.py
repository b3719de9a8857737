"""Planted bugs of keeping tags (docs/design/0037-upkeep.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lakevilla.global_log.refs import RefEntry, life_of
from lakevilla.lake.refs.states import SeenBase
from lakevilla.maintenance.gc import dead_lives
from lakevilla.refs import keep, keep_branch, states
from lakevilla.refs.entries import find_ref
from lakevilla.store.effects import Program
from lakevilla.testing.planted.bugs import attribute, instead, planted


@planted(for_histories=False)
def copies_before_a_life() -> Iterator[None]:
    """Copies are stored before HEAD says whose they are: with the base, it is told at the end."""

    def with_life(context: Any, name: str, first: RefEntry) -> Program[RefEntry]:
        head, entry = yield from find_ref(context, name)
        life = life_of(head.replacement, context.ids.nonce())
        return entry if entry.lives else msgspec.structs.replace(entry, lives=(life,))

    with instead(keep._with_life, with_life):
        yield


@planted(for_histories=False)
def kept_goes_with_its_life() -> Iterator[None]:
    """Gc deletes kept states with the life that they are of, though another tag has them."""

    def none(_: Any) -> set[str]:
        return set()

    with instead(dead_lives._kept_apart, none):
        yield


@planted(for_histories=False)
def blindkeep() -> Iterator[None]:
    """The base is put into whatever ref has the name by now."""

    def the_same(name: str, first: RefEntry, held: Any, entry: Any) -> Program[Any]:
        yield from ()
        return held, entry and msgspec.structs.replace(entry, base=first.base)

    with instead(keep._the_same, the_same):
        yield


@planted(for_histories=False)
def pending_again() -> Iterator[None]:
    """A kept branch lays what was pending at its base over the state that has it already."""
    original = states.parted

    def parted(base: Any) -> Program[Any]:
        new = yield from original(base)
        return msgspec.structs.replace(new, tables=base.tables)

    with instead(original, parted):
        yield


@planted(for_histories=False)
def old_files_named() -> Iterator[None]:
    """A kept branch goes on with commits that name the files of before."""

    def view(self: Any, context: Any, location: str) -> Program[Any]:
        return (yield from SeenBase._view(self, context, location))

    with attribute(keep_branch._Copied, "_view", view):
        yield

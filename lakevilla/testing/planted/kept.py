"""Planted bugs of keeping tags (docs/design/0037-upkeep.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lakevilla.global_log.refs import RefEntry, life_of
from lakevilla.maintenance.gc import dead_lives
from lakevilla.refs import keep
from lakevilla.refs.entries import find_ref
from lakevilla.store.effects import Program
from lakevilla.testing.planted.bugs import instead, planted


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
    original = keep._find_again

    def find_again(context: Any, name: str, first: RefEntry) -> Program[Any]:
        _, entry = yield from find_ref(context, name)
        held, entry = yield from original(context, name, entry)
        return held, msgspec.structs.replace(entry, base=first.base)

    with instead(original, find_again):
        yield

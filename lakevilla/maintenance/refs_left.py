"""Refs of a HEAD that is lost: bases say what they were called (docs/design/0021-head-lost.md)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from lakevilla.errors import CorruptObject, LakeVillaError
from lakevilla.global_log.bases import Base, load_base
from lakevilla.global_log.head import Head
from lakevilla.global_log.refs import BASES_PREFIX, BaseRef, RefEntry, made_of_life, parts_of
from lakevilla.global_log.repo import load_head
from lakevilla.results import Finding
from lakevilla.store.base import Found
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program, get, list_objects
from lakevilla.store.home import HOMES_PREFIX, at_home


def refs_left(
    former: Collection[str], known: Mapping[str, RefEntry]
) -> Program[tuple[dict[str, RefEntry], list[Finding]]]:
    """Each ref of those lakes by its newest base, and what is to be said of it.

    One that was deleted, and not cleaned up by gc, comes back: to keep too much loses nothing.
    ``known`` are the entries of a HEAD that is at hand: what they say beside the base counts.
    """
    refs: dict[str, RefEntry] = {}
    findings: list[Finding] = []
    heads = yield from _heads_of_lives()
    for info in (yield from list_objects(BASES_PREFIX)):
        parts = parts_of(info.key)
        outcome = yield from get(info.key)
        if parts is None or not isinstance(outcome, Found):
            continue
        made, digest = parts
        try:
            base = decode(info.key, outcome.body, Base)
            ref = BaseRef(made, digest, base.sequence, base.timestamp_ms)
            yield from load_base(ref)  # is it what its name tells?
        except LakeVillaError as error:
            message = f"a ref is left out: {error.message}"
            findings.append(Finding("warning", error.kind, message, key=info.key))
            continue
        newer = refs.get(base.name)
        if base.lake_id not in former or (newer is not None and newer.base.made > made):
            continue
        entry = RefEntry(f"{made}-{digest[:16]}", base.kind, ref, base.timestamp_ms, "rebuild")
        if base.kind == "clone":
            entry = msgspec.structs.replace(entry, source=base.source, since=base.sequence)
        found = _of_branch(entry, base, heads) if base.life else entry
        if found is not None:  # else it was never made, or has ended
            refs[base.name] = found
    for name in sorted(known.keys() - refs.keys()):
        lost = known[name]
        message = f"{lost.kind} {name!r} is left out: what it was kept by is not there any more"
        findings.append(Finding("warning", "ref_lost", message, key=lost.base.key))
    for name, entry in sorted(refs.items()):
        same = _as_known(known.get(name), entry)
        if same is not None:
            refs[name] = same
            continue
        findings.append(
            Finding(
                "warning",
                "ref_found",
                f"{entry.kind} {name!r} of global version {entry.base.sequence} was found again, "
                f"without its protection and metadata: delete_ref({name!r}) if it had been deleted "
                "before",
                key=entry.base.key,
            )
        )
    return refs, findings


def _as_known(known: RefEntry | None, found: RefEntry) -> RefEntry | None:
    """The entry that a HEAD has of what was found, if that is the same ref; it may have moved."""
    if known is None or known.kind != found.kind:
        return None
    if known.base == found.base and known.life == found.life:
        return msgspec.structs.replace(known, lives=found.lives or known.lives)
    if found.kind == "branch" and known.id == found.id:
        return msgspec.structs.replace(
            known, base=found.base, lives=found.lives, synced=None, reached=0
        )
    return None


def _heads_of_lives() -> Program[dict[str, Head]]:
    """The HEAD of each life of a branch that can be read."""
    listed = yield from list_objects(HOMES_PREFIX)
    names = {info.key.removeprefix(f"{HOMES_PREFIX}/").partition("/")[0] for info in listed}
    heads = {}
    for life in sorted(name for name in names if made_of_life(name) is not None):
        try:
            held = yield from at_home(life, load_head())
        except CorruptObject:
            continue
        if held is not None:
            heads[life] = held.head
    return heads


def _of_branch(entry: RefEntry, base: Base, heads: Mapping[str, Head]) -> RefEntry | None:
    """The entry of a branch whose base it is, with all lives that it may have had.

    None if the branch has ended, or the base is none of its present life.
    """
    lives = {name: head.life for name, head in heads.items() if head.life is not None}
    own = lives.get(base.life)
    if own is None:
        return None
    family = [name for name, life in lives.items() if life.ref_id == own.ref_id]
    newest = _present(family, heads)
    if newest is None:
        return None
    life = lives[newest]
    was_its_state = own.closed or base.life == newest
    if entry.base != life.base and not (was_its_state and entry.base.made > life.base.made):
        return None  # it stood there once, or was to stand there
    others = tuple(name for name in family if name != newest)
    return msgspec.structs.replace(entry, id=life.ref_id, lives=(*others, newest))


def _present(family: Sequence[str], heads: Mapping[str, Head]) -> str | None:
    """The life in which a branch was last, by the numbers that they were made for.

    One that is open and has commits of its own. Without one the newest that is open: they differ in
    the state of the lake that they stand on, as all but one were made by attempts to rebase the
    branch that have lost their race, and nobody has committed on those. None is open where a
    rebase was cut off: then the last that was closed.
    """
    lives = {name: heads[name].life for name in family}
    closed = {name: life.closed for name, life in lives.items() if life is not None}
    if "deleted" in closed.values():
        return None
    is_open = [name for name in family if not closed[name]]
    used = [name for name in is_open if heads[name].replacement > 0]
    return max(used or is_open or family, default=None)

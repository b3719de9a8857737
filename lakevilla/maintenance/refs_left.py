"""Refs of a HEAD that is lost: bases say what they were called (docs/design/0021-head-lost.md)."""

from __future__ import annotations

from collections.abc import Collection

from lakevilla.errors import LakeVillaError
from lakevilla.global_log.bases import Base, load_base
from lakevilla.global_log.refs import BASES_PREFIX, BaseRef, RefEntry, parts_of
from lakevilla.global_log.repo import load_head
from lakevilla.results import Finding
from lakevilla.store.base import Found
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program, get, list_objects
from lakevilla.store.home import at_home


def refs_left(former: Collection[str]) -> Program[tuple[dict[str, RefEntry], list[Finding]]]:
    """Each ref of those lakes by its newest base, and what is to be said of it.

    One that was deleted, and not cleaned up by gc, comes back: to keep too much loses nothing.
    """
    refs: dict[str, RefEntry] = {}
    findings: list[Finding] = []
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
        known = refs.get(base.name)
        if base.lake_id not in former or (known is not None and known.base.made > made):
            continue
        entry_id = f"{made}-{digest[:16]}"
        if base.life:
            held = yield from at_home(base.life, load_head())
            life = None if held is None else held.head.life
            if life is None or life.closed:
                continue  # it was never made, or has ended
            entry_id = life.ref_id
        refs[base.name] = RefEntry(
            entry_id,
            base.kind,
            ref,
            base.timestamp_ms,
            "rebuild",
            lives=(base.life,) if base.life else (),
        )
    for name, entry in sorted(refs.items()):
        findings.append(
            Finding(
                "warning",
                "ref_found",
                f"{entry.kind} {name!r} of global version {entry.base.sequence} was found again, "
                "without its protection and metadata: delete_ref if it had been deleted before",
                key=entry.base.key,
            )
        )
    return refs, findings

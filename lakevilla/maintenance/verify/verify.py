"""``verify``: compare all objects and data files of a lake with their known hashes and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.global_log.bases import Base, load_base, load_base_tables
from lakevilla.global_log.head import Head
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import load_sound
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import frozen_now, open_branch
from lakevilla.lake.frozen.states import (
    AtBase,
    AtHead,
    LakeState,
    StateName,
    chosen_places,
    state_of,
)
from lakevilla.lake.newer import report_newer
from lakevilla.maintenance.doctor_refs import look_at_refs, without_idle_risks
from lakevilla.maintenance.verify.files import Depth, Looked, ReadDeletes, look_at_files
from lakevilla.maintenance.verify.objects import look_at_named_objects
from lakevilla.results import Finding, Report
from lakevilla.store.effects import Program


def verify(
    context: Context,
    tables: Sequence[str] | None,
    at: StateName,
    sample: float,
    read_deletes: ReadDeletes,
) -> Program[Report]:
    """Check a lake; with ``tables``, or a state ``at``, only the data files of these.

    ``sample``: the share of data files whose content is checked; the size of every file is checked.
    """
    try:
        held = yield from context.existing()
    except StoreError:
        raise
    except LakeVillaError as error:
        key = getattr(error, "key", None)
        return Report(False, (Finding("error", error.kind, error.message, key=key),))
    if held is None:
        empty = f"{context.root} has no lake yet: the first transaction that writes makes one"
        return Report(True, (Finding("note", "empty", empty),))
    head, findings = held.head, list[Finding]()
    states: list[LakeState]
    if at is not None:
        states = [(yield from state_of(head, at))]
    else:
        if tables is None:
            findings += yield from report_newer(context)
            findings += yield from look_at_named_objects(context, head)
        head, _ = yield from load_sound(head)
        if tables is None:
            findings += yield from look_at_refs(context, head)
        states = [AtHead(head), *(yield from states_of_refs(head))]
    chosen = yield from chosen_places(head, (yield from tables_of(states)), tables)
    depth = Depth(hashes=sample, footers=sample)
    checked = yield from look_at_files(context, states, chosen, read_deletes, depth)
    findings = without_idle_risks(_each_once([*findings, *checked.findings]))
    ok = all(finding.severity == "note" for finding in findings)
    return Report(ok, (*findings, _summary(checked, len(chosen))))


def states_of_refs(head: Head) -> Program[list[LakeState]]:
    """Return the states that a HEAD's refs keep: their bases, and the branches' present states.

    Unreadable states are left out: ``look_at_refs`` reports them.
    """
    found: list[LakeState] = []
    for name, entry in sorted(head.refs.cached().items()):
        loads: list[Program[Base]] = [load_base(ref) for ref in entry.bases]
        if entry.kind == "branch":
            loads.append(_now(name, entry))
        for load in loads:
            try:
                base = yield from load
                yield from load_base_tables(base)
            except StoreError:
                raise
            except LakeVillaError:
                continue
            found.append(AtBase(base))
    return found


def _now(name: str, entry: RefEntry) -> Program[Base]:
    branch = yield from open_branch(name, entry)
    return (yield from frozen_now(branch))


def tables_of(states: Iterable[LakeState]) -> Program[list[str]]:
    """Return the locations of all tables in some states."""
    locations: dict[str, None] = {}
    for state in states:
        locations.update(dict.fromkeys((yield from state.tables())))
    return list(locations)


def _each_once(findings: Sequence[Finding]) -> list[Finding]:
    """Drop repeated findings on an object that two parts of the lake name."""
    found: dict[object, Finding] = {}
    for one in findings:
        found.setdefault(one.key or (one.table, one.kind, one.message), one)
    return list(found.values())


def _summary(checked: Looked, tables: int) -> Finding:
    parts = [
        f"{count:,} {comparison}"
        for count, comparison in (
            (checked.compared, "compared with the hash that was stored when they were written"),
            (checked.by_footer, "by size and footer"),
            (checked.by_size, "by size alone"),
        )
        if count
    ]
    shown = f"{_count(checked.files, 'data file')} of {_count(tables, 'table')}"
    shown += f": {', '.join(parts)}" if parts else ""
    if checked.without_hash:
        shown += (
            f"; {checked.without_hash:,} have no known hash, so damage in the middle of these is "
            "not found (other clients, or hash_files=False, or an Iceberg commit that is not kept "
            "any more)"
        )
    return Finding("note", "verified", shown)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"

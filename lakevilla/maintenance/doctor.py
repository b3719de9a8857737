"""Examine a lake: HEAD, its tables, and single objects."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from itertools import chain

from lakevilla.errors import CorruptObject, LakeVillaError, UnsupportedFormat
from lakevilla.global_log.commits import COMMITS_PREFIX, commit_key, read_commit
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.global_log.keys import KEYS_PREFIX, KeyRecord
from lakevilla.global_log.repo import LakeFile, commits_since, lake_key, load_sound
from lakevilla.lake.applicability import first_unfit, unpublished
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.states import AtHead
from lakevilla.lake.newer import report_newer
from lakevilla.lake.table_log import in_passing
from lakevilla.lake.tables.dropped import report_emptied
from lakevilla.lake.view import pending_parts
from lakevilla.maintenance.doctor_refs import look_at_refs, report_queues, without_idle_risks
from lakevilla.maintenance.recovery import opened, report_behind, unconfirmed, unreadable, voids_of
from lakevilla.maintenance.upkeep.maintain import look_at_upkeep
from lakevilla.maintenance.verify.files import Depth, ReadDeletes, look_at_files
from lakevilla.maintenance.verify.verify import states_of_refs, tables_of
from lakevilla.results import Finding, Report
from lakevilla.store.base import Found
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program, get, list_objects, some_at_once

# -------------------- doctor
#
# The doctor reports errors, pending work and leftovers, and changes nothing.


_DAY_SECONDS = 24 * 3600.0


def doctor(context: Context, *, files: ReadDeletes | None = None) -> Program[Report]:
    """Examine HEAD, its tables and their queues, saved transactions and the lake's history.

    With ``files``, which reads deletes of rows, every live data file is examined as well.
    """
    try:
        held = yield from context.existing()
    except LakeVillaError as error:
        key = getattr(error, "key", None)
        return Report(False, (Finding("error", error.kind, error.message, key=key),))
    if held is None:
        empty = f"{context.root} has no lake yet: the first transaction that writes makes one"
        return Report(True, (Finding("note", "empty", empty),))
    head = held.head
    findings: list[Finding] = []
    if head.root != context.root:
        findings.append(
            Finding(
                "error",
                "moved",
                f"HEAD names the root {head.root}, not {context.root}: the lake was copied or "
                "moved and is read-only; `lakevilla doctor --adopt` gives it a new identity",
            )
        )
    if head.unconfirmed:
        findings.append(unconfirmed(head))
    findings += yield from report_newer(context)
    head = yield from _readable(head, findings)
    locations = [location for location, state in head.tables.items() if not state.dropped]
    reports = yield from some_at_once(
        in_passing(context, place, _table(context, head, place)) for place in locations
    )
    findings.extend(finding for some in reports for finding in some)
    lost = {finding.table for finding in findings if finding.kind == "table_lost"}
    existing = [location for location in locations if location not in lost]
    found = yield from report_queues(context, head)
    findings.extend(found.findings)
    findings.extend((yield from _history(context, head)))
    known = {finding.key for finding in findings if finding.key is not None}
    findings.extend((yield from look_at_objects(context, head, existing, known)))
    findings.extend((yield from report_emptied(context, head)))
    findings.extend((yield from look_at_refs(context, head)))
    findings.extend((yield from look_at_upkeep()))
    if files is not None:
        reported = {(finding.table, finding.kind, finding.key) for finding in findings}
        states = [AtHead(head), *(yield from states_of_refs(head))]
        kept = yield from tables_of(states[1:])
        places = [*existing, *(place for place in kept if place not in locations)]
        # Read only the footers: ``verify`` finds damage in the rest of a file.
        checked = yield from look_at_files(context, states, places, files, Depth(0, 1))
        findings.extend(
            finding
            for finding in checked.findings
            if (finding.table, finding.kind, finding.key) not in reported
        )
        findings = without_idle_risks(findings)
    ok = all(finding.severity == "note" for finding in findings)
    return Report(ok, tuple(findings), found.queues, found.cycles)


def _readable(head: Head, findings: list[Finding]) -> Program[Head]:
    """Return HEAD with the readable leaves of its maps loaded; report damaged or missing leaves."""
    head, damaged = yield from load_sound(head)
    findings.extend(
        Finding(
            "error",
            error.kind,
            f"{error.message} (its tables, names or refs can't be used, and are not listed here)",
            key=error.key,
        )
        for error in damaged
    )
    return head


def _table(context: Context, head: Head, location: str) -> Program[list[Finding]]:
    tail = yield from opened(context, head, location)
    if isinstance(tail, Finding):
        return [tail]
    try:
        waiting = unpublished(head, location, tail)
        parts = yield from pending_parts(context, location, waiting)
        unfit = yield from first_unfit(context, head, location, tail, waiting, parts)
        findings = [] if waiting else (yield from report_behind(context, tail))
    except LakeVillaError as error:
        return [unreadable(location, error)]
    if not waiting:
        return findings
    times = {commit.sequence: commit.timestamp_ms for commit in head.commits}
    for index, ref in enumerate(waiting):
        decided_ms = times.get(ref.sequence)
        age = None if decided_ms is None else context.clock.now() - decided_ms / 1000
        old = age is None or age > _DAY_SECONDS
        age_text = "over a day" if age is None else f"{max(age, 0):.0f} s"
        what_next = "`lakevilla recover` publishes it"
        if unfit is not None and index >= unfit:
            what_next = (
                "a foreign change made it inapplicable, and `lakevilla recover` applies it again "
                "where that is possible, or reports what is lost"
            )
        findings.append(
            Finding(
                "error" if old else "warning",
                "unpublished",
                f"transaction {ref.txn} was decided {age_text} ago and is not in the log of table "
                f"{location}: {what_next}",
                table=location,
                txn_id=ref.txn,
            )
        )
    return findings


def _history(context: Context, head: Head) -> Program[list[Finding]]:
    try:
        commits = yield from commits_since(head, head.history_start)
    except LakeVillaError as error:
        return [Finding("error", error.kind, error.message)]
    findings = []
    for commit in commits or ():
        if commit.kind != "reconcile":
            continue
        try:
            stored = yield from context.commit_object(commit.txn, commit.hash)
        except LakeVillaError as error:
            key = getattr(error, "key", None)
            findings.append(Finding("error", error.kind, error.message, None, commit.txn, key))
            continue
        if stored.quiet:
            continue
        table = next(iter(commit.tables))
        # A warning: the loss is past, nothing can be done about it, and the lake's present state is
        # sound.
        findings += [
            replace(one, severity="warning")
            for one in (yield from voids_of(context, stored, table))
        ]
        voided = {txn for txn, _ in stored.voided}
        for _, txn, _ in stored.replaces:
            if txn in voided:
                continue
            read = ", and rows it had read were changed" if txn in stored.touched_reads else ""
            findings.append(
                Finding(
                    "warning",
                    "reconciled",
                    f"transaction {txn} was replayed on a foreign change of table {table}{read}",
                    table=table,
                    txn_id=txn,
                )
            )
    return findings


# -------------------- doctor objects
#
# The doctor's reports on single objects: commit objects, idempotency keys, and tables' claims.


def look_at_objects(
    context: Context, head: Head, tables: Iterable[str], known: Container[str]
) -> Program[list[Finding]]:
    """Return findings on commit objects, idempotency keys and the claims of ``tables``.

    Objects in ``known`` were already reported.
    """
    findings = yield from _commits(context, head, known)
    listed = yield from list_objects(KEYS_PREFIX)
    found = yield from some_at_once(
        chain(
            (_key(info.key) for info in listed),
            (_lake_file(context, head, location) for location in tables),
        )
    )
    findings.extend(finding for finding in found if finding is not None)
    return findings


def _commits(context: Context, head: Head, known: Container[str]) -> Program[list[Finding]]:
    # A commit object is stored before HEAD names it, so a LIST after the read of HEAD has all of
    # them.
    there = {info.key for info in (yield from list_objects(COMMITS_PREFIX))}
    kept = [one for one in (yield from _kept(head)) if _key_of(one) not in known]
    read = [one for one in kept if _key_of(one) in there]
    findings: list[Finding] = []
    found = yield from some_at_once(_commit(one) for one in read)
    findings.extend(finding for finding in found if finding is not None)
    missing = [one for one in kept if _key_of(one) not in there]
    return findings + ((yield from _missing(context, head, missing)) if missing else [])


def _commit(commit: CommitSummary) -> Program[Finding | None]:
    """Check a commit object in the store, even if it is cached."""
    key = _key_of(commit)
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        return None  # gc has deleted the object since it was listed
    try:
        read_commit(key, outcome.body)
    except LakeVillaError as error:
        message = f"commit {commit.sequence} of the lake can't be read or redone any more"
        return Finding(
            "error", error.kind, f"{error.message}; {message}", txn_id=commit.txn, key=key
        )
    return None


def _missing(
    context: Context, head: Head, missing: Iterable[CommitSummary]
) -> Program[list[Finding]]:
    # This excludes commits that gc has removed from the history since.
    held = yield from context.head()
    begins = head.history_start if held is None else held.head.history_start
    return [
        Finding(
            "error",
            "corrupt_object",
            f"{_key_of(one)} is missing although commit {one.sequence} of the lake is kept: "
            "restore it from a copy, or that commit can't be read or redone any more; where it is "
            "not published, `lakevilla recover` cancels it",
            txn_id=one.txn,
            key=_key_of(one),
        )
        for one in missing
        if one.sequence > begins
    ]


def _kept(head: Head) -> Program[list[CommitSummary]]:
    """Return the kept commits with commit objects; only HEAD's if a page is unreadable."""
    try:
        commits = yield from commits_since(head, head.history_start)
    except (CorruptObject, UnsupportedFormat):  # the report on the history names this error
        commits = None
    if commits is None:
        commits = tuple(one for one in head.commits if one.sequence > head.history_start)
    return [one for one in commits if one.hash]


def _key_of(commit: CommitSummary) -> str:
    return commit_key(commit.txn, commit.hash)


def _key(key: str) -> Program[Finding | None]:
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        return None
    try:
        decode(key, outcome.body, KeyRecord)
    except LakeVillaError as error:
        message = f"an idempotency key can't be read: {error.message}"
        return Finding("error", error.kind, message, key=key)
    return None


def _lake_file(context: Context, head: Head, location: str) -> Program[Finding | None]:
    """Check a table's claim ``lake.json``: without it, another lake may claim the table."""
    key = lake_key(location)
    outcome = yield from get(key)
    try:
        owner = decode(key, outcome.body, LakeFile) if isinstance(outcome, Found) else None
    except LakeVillaError as error:
        message = f"{error.message}; or delete it, and `lakevilla recover` writes it again"
        return Finding("error", error.kind, message, table=location, key=key)
    if owner is None or not owner.lake_id:
        held = yield from context.head()
        if held is None or location not in held.head.tables or held.head.tables[location].dropped:
            return None  # the table was unregistered since HEAD was read
        what = "is missing" if owner is None else "names no lake"
        message = f"{key} {what}, so another lake may take table {location}"
        remedy = "`lakevilla recover` writes it again"
        return Finding("error", "lake_file", f"{message}: {remedy}", table=location, key=key)
    if not owner.names(head):
        return Finding(
            "error",
            "lake_file",
            f"table {location} is claimed by the lake at {owner.root} (id {owner.lake_id}) too: "
            "`unregister` it in one of them, before both write it",
            table=location,
            key=key,
        )
    return None

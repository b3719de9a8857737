"""The doctor: what is wrong, pending or left over. It only tells."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from lakevilla.errors import LakeVillaError
from lakevilla.global_log.head import Head, NameMap, TableMap
from lakevilla.global_log.repo import commits_since, fetch_sound
from lakevilla.lake.context import Context
from lakevilla.lake.fitness import first_unfit, unpublished
from lakevilla.lake.frozen.states import AtHead
from lakevilla.lake.newer import report_newer
from lakevilla.lake.tables.dropped import report_emptied
from lakevilla.lake.view import pending_parts
from lakevilla.maintenance.doctor_objects import look_at_objects
from lakevilla.maintenance.doctor_queues import report_queues
from lakevilla.maintenance.doctor_refs import look_at_refs, without_idle_risks
from lakevilla.maintenance.doctor_tables import opened, unreadable
from lakevilla.maintenance.recovery import unconfirmed
from lakevilla.maintenance.upkeep.doctor_upkeep import look_at_upkeep
from lakevilla.maintenance.verify.files import Depth, ReadDeletes, look_at_files
from lakevilla.maintenance.verify.verify import states_of_refs, tables_of
from lakevilla.maintenance.version_hints import report_behind
from lakevilla.maintenance.voids import voids_of
from lakevilla.results import Finding, Report
from lakevilla.store.effects import Program, parallel

_DAY_SECONDS = 24 * 3600.0


def doctor(context: Context, *, files: ReadDeletes | None = None) -> Program[Report]:
    """Look at HEAD, every table in it, its queue, saved transactions and the lake's history.

    With ``files``, which reads what deletes rows, at every live data file, too.
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
    reports = yield from parallel([_table(context, head, location) for location in locations])
    findings.extend(finding for some in reports for finding in some)
    lost = {finding.table for finding in findings if finding.kind == "table_lost"}
    there = [location for location in locations if location not in lost]
    found = yield from report_queues(context, head)
    findings.extend(found.findings)
    findings.extend((yield from _history(context, head)))
    known = {finding.key for finding in findings if finding.key is not None}
    findings.extend((yield from look_at_objects(context, head, there, known)))
    findings.extend((yield from report_emptied(context, head)))
    findings.extend((yield from look_at_refs(context, head)))
    findings.extend((yield from look_at_upkeep()))
    if files is not None:
        reported = {(finding.table, finding.kind, finding.key) for finding in findings}
        states = [AtHead(head), *(yield from states_of_refs(head))]
        kept = yield from tables_of(states[1:])
        places = [*there, *(place for place in kept if place not in locations)]
        # Their ends alone: what is in the middle of them is for ``verify`` to tell.
        looked = yield from look_at_files(context, states, places, files, Depth(0, 1))
        findings.extend(
            finding
            for finding in looked.findings
            if (finding.table, finding.kind, finding.key) not in reported
        )
        findings = without_idle_risks(findings)
    ok = all(finding.severity == "note" for finding in findings)
    return Report(ok, tuple(findings), found.queues, found.cycles)


def _readable(head: Head, findings: list[Finding]) -> Program[Head]:
    """HEAD with what can be read of its maps; leaves that are damaged or missing are told."""
    damaged = yield from fetch_sound(head)
    findings.extend(
        Finding(
            "error",
            error.kind,
            f"{error.message} (its tables and names can't be used, and are not listed here)",
            key=error.key,
        )
        for error in damaged
    )
    if not damaged:
        return head
    return msgspec.structs.replace(
        head, tables=TableMap(head.tables.at_hand()), names=NameMap(head.names.at_hand())
    )


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
    times = {commit.sequence: commit.timestamp_ms for commit in head.commits}
    for index, ref in enumerate(waiting):
        decided_ms = times.get(ref.sequence)
        age = None if decided_ms is None else context.clock.now() - decided_ms / 1000
        old = age is None or age > _DAY_SECONDS
        age_text = "over a day" if age is None else f"{max(age, 0):.0f} s"
        fits = "" if unfit is None or index < unfit else "; a foreign change made it unfit"
        findings.append(
            Finding(
                "error" if old else "warning",
                "unpublished",
                f"transaction {ref.txn} was decided {age_text} ago and is not in the log of table "
                f"{location}{fits}: `lakevilla recover` publishes it",
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
        # Nothing is left to do about it: it is history, and no error of the lake as it is.
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

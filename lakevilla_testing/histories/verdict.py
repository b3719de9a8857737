"""The verdict on a history: the invariants, compared with the actions and reads of its clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from lakevilla.errors import VersionNotFound
from lakevilla.global_log.commits import COMMITS_PREFIX, CommitObject, commit_key
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.maintenance.gc.listing import TIME_NAME
from lakevilla.results import Report
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Given
from lakevilla.sublogs.record import TXNS_PREFIX
from lakevilla_testing.checks import elle, invariants
from lakevilla_testing.checks.feed import copies_are_as_it_was, feed_is_as_it_was
from lakevilla_testing.checks.invariants import Violated
from lakevilla_testing.checks.past import past_is_as_it_was
from lakevilla_testing.checks.refs import refs_are_as_they_were
from lakevilla_testing.checks.row_ids import row_ids_are_unique
from lakevilla_testing.checks.sizes import sizes_are_right
from lakevilla_testing.histories import reshaping
from lakevilla_testing.histories.attempts import BALANCE, Try, World, context_of
from lakevilla_testing.histories.followers import catch_up
from lakevilla_testing.histories.givers import answers_are_true
from lakevilla_testing.histories.plan import RECREATED, TABLES, Plan
from lakevilla_testing.histories.recorded import record
from lakevilla_testing.histories.records import (
    all_commits,
    entries_in_logs,
    ids_in_logs,
    live_commits,
    newest_head,
    tables_with_log,
)
from lakevilla_testing.tables.reader import read_rows, read_table, run_now
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.rows import Row

#: To check each of them would take longer than the history itself.
_VERSIONS_LOOKED_AT = 3
_RANGES_LOOKED_AT = 2


def rows_by_table(world: World) -> dict[str, list[Row]]:
    """Return all tables that have a log, with their rows."""
    found = {}
    for table in tables_with_log(world):
        logged = run_now(world.simulation.store, read_table(table))
        assert logged is not None
        found[table] = run_now(world.simulation.store, read_rows(logged))
    return found


def check(world: World) -> None:
    """Check all conditions that must hold once all writes took effect and the lake is recovered."""
    store, plan = world.simulation.store, world.plan
    tables = tables_with_log(world)
    invariants.every_table_is_readable(store, tables)
    invariants.no_id_commits_twice(store, tables)
    invariants.tables_follow_head(store, tables)
    invariants.all_or_nothing(store, tables)
    if plan.version >= 3:
        iceberg = [table for table in TABLES if plan.format_of(table) == "iceberg"]
        with_ids = [table for table in tables if table in iceberg]
        world.events["files with ids"] += row_ids_are_unique(store, with_ids)
    head = newest_head(world)
    commits = all_commits(world, head)
    winners = _winners(world, commits)
    _check_reported(world, commits, winners)
    _check_counts(world)
    _check_keys(world, commits)
    _check_told(world, winners)
    _check_past(world)
    if plan.harsh:
        return
    rows = rows_by_table(world)
    made_void = voided(world)
    void = {txn for _, txn in made_void}
    if plan.reshaped:
        reshaping.marks_are_kept(world, rows)
        claims = {txn: attempt for txn, attempt in winners.items() if txn not in void}
        reshaping.columns_are_filled(world, rows, claims)
    if plan.reshaped and not void and not {"reshape", "restore"} & set(plan.foreign):
        reshaping.renames_are_seen(world, rows, winners)
    _void_for_a_reason(plan, made_void - given_in(world))
    answers_are_true(world, rows)
    if void and plan.reshaped:
        return  # reported to their owners, and not to those that had read their commits before
    _check_rows(world, winners, rows, head, void)
    if void:
        return  # reported, and their work on other tables remains
    _check_sums(world, rows)
    _check_isolation(world, winners, rows, commits)


def voided(world: World) -> set[tuple[str, str]]:
    """Return table and transaction of each decided commit that was cancelled on the table so far.

    Included are commits that a cancelled ``reconcile`` commit had replaced.
    """
    objects: dict[str, CommitObject] = {}
    for mutation in world.simulation.store.journal:
        if mutation.after is not None and mutation.key.startswith(f"{COMMITS_PREFIX}/"):
            objects[mutation.key] = decode(mutation.key, mutation.after.body, CommitObject)
    found: set[tuple[str, str]] = set()
    for commit in all_commits(world, newest_head(world)):
        if commit.kind != "reconcile":
            continue
        stored = objects[commit_key(commit.txn, commit.hash)]
        hashes = {txn: digest for _, txn, digest in stored.replaces}
        for table in commit.tables:
            for txn, _ in stored.voided:
                if txn not in hashes:
                    found.add((table, txn))  # a member of a combined commit
                    continue
                before = objects[commit_key(txn, hashes[txn])]
                voided = {earlier for earlier, _ in before.voided}
                stood_for = [t for _, t, _ in before.replaces if t not in voided]
                members = [txn for txn, _ in before.by_member()]
                found.update((table, one) for one in stood_for or members)
    return found


def given_in(world: World) -> set[tuple[str, str]]:
    """Return table and transaction of each commit of an Iceberg client.

    It fits one version, and is not replayed on another one.
    """
    return {
        (operation.table, commit.txn)
        for mutation in world.simulation.store.journal
        if mutation.after is not None and mutation.key.startswith(f"{COMMITS_PREFIX}/")
        for commit in [decode(mutation.key, mutation.after.body, CommitObject)]
        for operation in commit.operations
        if isinstance(operation, Given)
    }


def _void_for_a_reason(plan: Plan, made_void: Collection[tuple[str, str]]) -> None:
    """Check that commits that can be replayed are replayed.

    Only a client that changes columns, creates a table again or deletes its files may cause a
    cancelled commit.
    """
    if plan.reshaped or plan.neglected == "others":
        return
    for table, txn in sorted(made_void):
        if not (table == RECREATED and "recreate" in plan.foreign):
            raise Violated(f"{txn} is void on {table}, and nothing was in the way of its replay")


def voids_are_reported(world: World, known: set[tuple[str, str]], report: Report) -> None:
    """Check that recovery reports each commit that it has cancelled, once, as an error."""
    fresh = voided(world) - known
    reported = [f for f in report.findings if f.kind == "voided" and f.severity == "error"]
    named = " ".join(finding.message for finding in reported)
    for table, txn in fresh:
        if not any(f.table == table for f in reported) or txn not in named:
            raise Violated(f"{txn} is void on {table}, and recover did not say so")
    cleaned = [finding.message for finding in reported if "was deleted" in finding.message]
    if cleaned and world.plan.neglected != "others":
        raise Violated(f"nobody else has cleaned up: {cleaned[0]}")
    if reported and report.ok:
        raise Violated("recover has made commits void and calls that well")


def nothing_is_blocked(world: World, write: Callable[[Sequence[str]], Program[Any]]) -> None:
    """Check, on a copy of the store, that a new client can commit to each table and publish the
    commit.
    """
    tables = [table for table in tables_with_log(world) if table in TABLES]
    result = run_now(world.simulation.store.copy(), write(tables))
    waiting = [table for table, version in result.versions.items() if version is None]
    if waiting:
        raise Violated(f"everyone is gone, and {', '.join(waiting)} stay blocked")


def lists_are_explained(world: World) -> None:
    """Check that clients' reads of lists are true, and that some order explains them."""
    head = newest_head(world)
    commits = all_commits(world, head)
    winners = _winners(world, commits)
    _check_reported(world, commits, winners)
    _check_isolation(world, winners, rows_by_table(world), commits)


def _check_past(world: World) -> None:
    plan, simulation = world.plan, world.simulation
    client = Client(simulation, "historian", f"{simulation.seed}/historian", 1.0)
    passing = [RECREATED] if "recreate" in plan.foreign else []
    may_be_missing = (
        "clean" in plan.foreign
        or plan.collects
        or plan.few_versions
        or bool(plan.neglected)
        or plan.keepers > 0
    )
    for is_as_it_was, count in (
        (past_is_as_it_was, _VERSIONS_LOOKED_AT),
        (feed_is_as_it_was, _RANGES_LOOKED_AT),
    ):
        world.events[is_as_it_was.__name__] += is_as_it_was(
            simulation.store,
            context_of(client),
            client.random,
            count=count,
            passing=passing,
            may_be_missing=may_be_missing,
        )
    world.events += sizes_are_right(
        simulation.store,
        context_of(client),
        client.random,
        count=_VERSIONS_LOOKED_AT,
        passing=passing,
    )


def copies_are_right(world: World) -> None:
    """Check each follower's copy, at each of its positions and after catching up."""
    simulation = world.simulation
    client = Client(simulation, "reader", f"{simulation.seed}/reader", 1.0)
    context = context_of(client)
    for copy in world.copies:
        with suppress(VersionNotFound):  # clean-up may have removed its source by now
            run_now(simulation.store, catch_up(context, copy))
    world.events["copied"] += copies_are_as_it_was(simulation.store, context, world.copies)


def refs_are_kept(world: World) -> None:
    """Check that each ref shows its state, and that all files of this state exist."""
    plan, simulation = world.plan, world.simulation
    client = Client(simulation, "archivist", f"{simulation.seed}/archivist", 1.0)
    world.events["kept"] += refs_are_as_they_were(
        simulation.store,
        context_of(client),
        world.made_refs,
        world.deleted_refs,
        may_be_lost="clean" in plan.foreign or plan.few_versions,
    )


# ------------------------------------------------------ who committed


def _winners(world: World, commits: Sequence[CommitSummary]) -> dict[str, Try]:
    """Return for each committed id the attempt that committed, by HEAD and the logs."""
    winners: dict[str, Try] = {}
    summaries = {
        txn: commit
        for commit in commits
        if commit.kind == "transaction"
        for txn in commit.transactions
    }
    logged = ids_in_logs(world)
    for attempt in world.attempts:
        core = attempt.core
        summary = summaries.get(core.id)
        if summary is not None:
            # Another client may have performed a member's operations, so that it knows no digest.
            is_member = core.id in summary.members and not attempt.lost
            if is_member and core.options.validation != "precise":
                raise Violated(f"{core.id} is a member, and was to be validated by rules")
            if summary.hash in core.ending.digests or is_member:
                winners[core.id] = attempt
        elif not core.through_head and core.id in logged and not attempt.lost:
            # If an attempt that lost had left its entry, the id or its rows would exist twice.
            winners[core.id] = attempt
    return winners


def _by_others(world: World, commits: Sequence[CommitSummary]) -> int:
    """Return how many transactions were performed by another client than their own."""
    owners = {attempt.id: attempt.core.options.owner for attempt in world.attempts}
    groups = [{owners[txn] for txn in one.members if txn in owners} for one in commits]
    return sum(len(group) - 1 for group in groups if group)


def _check_reported(
    world: World, commits: Sequence[CommitSummary], winners: dict[str, Try]
) -> None:
    own = [commit for commit in commits if commit.kind == "transaction"]
    decided = {txn for commit in own for txn in commit.transactions}
    world.events["combined"] += sum(len(commit.members) for commit in own)
    world.events["by others"] += _by_others(world, own)
    logged = ids_in_logs(world)
    for attempt in world.attempts:
        writes = bool(attempt.core.work.done)
        winner = winners.get(attempt.id)
        if attempt.status == "committed" and writes and winner is not attempt:
            if "recreate" in world.plan.foreign and not attempt.core.through_head:
                continue
            raise Violated(f"{attempt.id} was acknowledged and is not there ({attempt.kind})")
        if attempt.status == "aborted" and winner is attempt:
            if "recreate" in world.plan.foreign and not attempt.core.through_head:
                continue  # its entry was stored in a log that was torn down at the same time
            raise Violated(f"{attempt.id} was told that it is aborted, and has committed")
    for txn, state in world.verdicts:
        there = txn in decided or txn in logged
        if state == "aborted" and there:
            raise Violated(f"the outcome of {txn} was aborted, and it has committed")
        if state == "committed" and not there:
            raise Violated(f"the outcome of {txn} was committed, and it is nowhere")


def _check_counts(world: World) -> None:
    """Check that the counts that a client has read are those of the committed operations."""
    for attempt in world.attempts:
        if attempt.status == "committed" and not attempt.foreign:
            for done, seen in attempt.counts:
                if done.counts.rows != seen:
                    raise Violated(f"{attempt.id} saw {seen} rows and committed {done.counts.rows}")


def _check_keys(world: World, commits: Sequence[CommitSummary]) -> None:
    """Check that a key commits once, and that an application's versions grow."""
    keys = {attempt.id: attempt.key for attempt in world.attempts if attempt.key is not None}
    kept_ms = 1000 * world.plan.settings.outcome_retention_seconds
    used: dict[str, int] = {}
    last: dict[str, int] = {}
    for commit in commits:
        key = keys.get(commit.txn)
        if key is None or commit.kind != "transaction":
            continue
        name, version = key
        if version is None:
            since = used.get(name)
            used[name] = commit.timestamp_ms
            # Clocks are wrong by up to two hours, and a key is not kept for ever.
            if since is not None and commit.timestamp_ms - since < kept_ms - 3 * 3600_000:
                raise Violated(f"idempotency key {name} was committed twice, again by {commit.txn}")
        elif version <= last.get(name, -1):
            raise Violated(f"version {version} of {name} was committed after {last[name]}")
        else:
            last[name] = version


def _check_told(world: World, winners: dict[str, Try]) -> None:
    """Check that each log has the metadata and the applications of transactions."""
    void = voided(world)
    for table, body, txns in entries_in_logs(world):
        for txn in txns & winners.keys():
            options = winners[txn].core.options
            told = [*options.metadata, *options.applications]
            missing = [one for one in told if one.encode() not in body]
            if missing and (table, txn) not in void:
                raise Violated(f"the log of {table} lacks {missing[0]!r} of {txn}")
            world.events["told"] += len(told)


# ------------------------------------------------------------- rows


def _check_rows(
    world: World,
    winners: dict[str, Try],
    rows: dict[str, list[Row]],
    head: Head | None,
    void: set[str],
) -> None:
    found = Counter((table, row["id"]) for table in rows for row in rows[table])
    repeated = [key for key, count in found.items() if count > 1]
    if repeated:
        raise Violated(f"rows are there more than once: {repeated}")
    dropped = set() if head is None else {t for t, state in head.tables.items() if state.dropped}
    committed = set(winners.values())
    may_be_taken = {key for attempt in world.attempts for key in attempt.taken}
    taken = {key for attempt in committed if attempt.id not in void for key in attempt.taken}
    # A commit that was redone, or replayed, may have found another row count.
    for key in taken & set(found):
        raise Violated(f"row {key} was deleted by a committed transaction and is there")
    for attempt in world.attempts:
        for key in attempt.added:
            here = key in found
            if attempt in committed:
                if attempt.id in void:
                    continue
                if (
                    not here
                    and key not in may_be_taken
                    and key[0] in TABLES
                    and key[0] not in dropped
                ):
                    raise Violated(f"row {key} of {attempt.id} is lost")
            elif here and attempt.lost:
                raise Violated(f"row {key} of an attempt of {attempt.id} that lost is there")
            elif here and attempt.id not in winners and attempt.status != "unknown":
                raise Violated(f"row {key} of {attempt.id} ({attempt.status}) is there")
    for key in world.foreign_rows:
        if key not in found and key not in may_be_taken:
            raise Violated(f"row {key} of a client without LakeVilla is lost")


def _check_sums(world: World, rows: dict[str, list[Row]]) -> None:
    accounts = [row for table in TABLES for row in rows[table] if row["id"] in (2, 3)]
    total = 2 * BALANCE * len(TABLES)
    found = sum(row["balance"] for row in accounts)
    if found != total:
        raise Violated(f"the accounts hold {found}, not {total}")
    for attempt in world.attempts:
        if attempt.foreign or attempt.status != "committed":
            continue
        for seen in attempt.sums:
            if seen != total:
                raise Violated(f"{attempt.id} saw accounts of {seen}, not {total}")
    strict = world.plan.isolated and not any(level.lenient for level in world.plan.levels)
    if strict and not any(attempt.foreign for attempt in world.attempts):
        switches = [r["balance"] for t in TABLES[:2] for r in rows[t] if r["id"] == 4]
        if sum(switches) < 1:
            raise Violated("both switches are off: write skew")


def _check_isolation(
    world: World,
    winners: dict[str, Try],
    rows: dict[str, list[Row]],
    commits: Sequence[CommitSummary],
) -> None:
    world.recorded = recorded = record(world, winners, rows, commits)
    if recorded is not None and (bad := elle.unpromised(recorded)):
        raise Violated("; ".join(map(str, bad)))


# ---------------------------------------------------------- afterwards


def queues_are_empty(world: World) -> None:
    """Check that no marker is in a queue of the lake once the leases of dead clients are over."""
    invariants.places_have_records(world.simulation.store)
    head = newest_head(world)
    if head is not None:
        live = [table for table, state in head.tables.items() if not state.dropped]
        invariants.every_marker_ends(world.simulation.store, live)


def recovered_once_is_enough(world: World, recover: Callable[[], Program[Any]]) -> None:
    invariants.recovery_twice_is_recovery_once(world.simulation.store, recover)


def nothing_is_left_over(world: World) -> None:
    """Check that gc leaves no file, commit object or record of a transaction that never committed.

    No place in a queue is left either, and no reservation.
    """
    head = newest_head(world)
    if head is not None and head.reserved:
        raise Violated(f"HEAD still holds the reservations {head.reserved}")
    # A table that was never in HEAD is not the lake's to clean: its files may belong to a copy of
    # another lake's table.
    ruled = (
        [] if head is None else [table for table in tables_with_log(world) if table in head.tables]
    )
    invariants.no_orphan_files(world.simulation.store, ruled)
    invariants.every_marker_ends(world.simulation.store, ruled)
    commits = live_commits(world, head)
    named = {(commit.txn, commit.hash) for commit in commits}
    if head is not None:  # the commit objects that list the tags of a table
        refreshed = (head.tables[table].refreshed for table in head.tables)
        named |= {(ref.txn, ref.hash) for ref in refreshed if ref is not None}
    for key in world.simulation.store.objects:
        if key.startswith("_lakevilla/commits/"):
            txn, digest = key.rsplit("/", 1)[1].removesuffix(".json").rsplit("-", 1)
            if (txn, digest) not in named:
                raise Violated(f"{key} belongs to no commit and was not collected")
        elif key == f"{TXNS_PREFIX}/{TIME_NAME}":
            continue  # objects of gc itself
        elif key.startswith(f"{TXNS_PREFIX}/") and head is not None:
            raise Violated(f"{key} belongs to a transaction that has ended and was not collected")


def same_rows(world: World, before: dict[str, list[Row]]) -> None:
    after = rows_by_table(world)
    for table, rows in before.items():
        equal_rows(table, after[table], rows)


def equal_rows(table: str, found: Sequence[Row], expected: Sequence[Row]) -> None:
    one = sorted(tuple(row.items()) for row in found)
    other = sorted(tuple(row.items()) for row in expected)
    if one != other:
        raise Violated(f"{table} has rows {one}, not {other}")

"""What the clients of a history did and read, for checkers of isolation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakevilla.global_log.head import CommitSummary
from lakevilla_testing.checks.history import Recorded, Txn
from lakevilla_testing.histories.attempts import Try, World
from lakevilla_testing.histories.places import by_place, seen_unplaced
from lakevilla_testing.histories.plan import TABLES
from lakevilla_testing.world.faults import Fault
from lakevilla_testing.world.rows import Row


def record(
    world: World,
    winners: Mapping[str, Try],
    rows: Mapping[str, Sequence[Row]],
    commits: Sequence[CommitSummary],
) -> Recorded | None:
    """Return the history of the lists; None if nothing was promised of its reads."""
    # Without Feature.I no transaction waits for commits that are decided and not published yet.
    mixed = not world.plan.isolated and any(one.core.through_head for one in world.attempts)
    if mixed and any(c.kind == "reconcile" for c in commits):
        return None  # reported to its owner, and not to those that had read its commit
    final = {
        f"{table}{row['id']}": tuple(int(text) for text in row["items"].split(",") if text)
        for table in rows
        if table in TABLES
        for row in rows[table]
        if row["id"] < 2
    }
    unplaced = seen_unplaced(world, winners)
    # A stale list of objects may cause a stale first read; it can't make a client commit by that
    # read.
    in_order = not mixed and not world.simulation.fired[Fault.STALE_LIST]
    # Each transaction has its own level: the weaker level of one does not affect another. Reads of
    # weaker levels are of one state, too.
    lenient = {a.record.name for a in world.attempts if a.core.options.isolation == "snapshot"}
    lenient |= {a.record.name for a in world.attempts if a.core.options.slack}
    return Recorded(
        [part for one in _answered(world, winners) for part in by_place(*one, unplaced)],
        final,
        real_time=in_order,
        snapshot=frozenset(lenient),
        unplaced={one: frozenset().union(*seen.values()) for one, seen in unplaced.items()},
    )


def _answered(world: World, winners: Mapping[str, Try]) -> list[tuple[Try, Txn]]:
    """Return the attempts, each with what its client was told of it."""
    committed = set(winners.values())
    found = []
    for attempt in world.attempts:
        told = attempt.record
        if attempt.id in winners and attempt not in committed and not attempt.lost:
            continue  # another process continued it
        if attempt.kind == "resumed" and attempt not in committed:
            continue
        if attempt.foreign or (attempt in committed and attempt.status == "unknown"):
            # The transaction's reads are not guaranteed: it got an error that says so, or no
            # answer.
            kept = [operation for operation in told.operations if hasattr(operation, "value")]
            told = Txn(told.name, told.client, told.invoked, kept, told.completed, told.status)
        found.append((attempt, told))
    return found

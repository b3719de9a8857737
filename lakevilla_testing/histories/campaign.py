"""One history of the real protocol from a seed: set up, run, recover, check."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.formats.base import FormatName
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import load_tables
from lakevilla.ids import NO_TXN
from lakevilla.maintenance import recovery, vacuum
from lakevilla.maintenance.gc import gc
from lakevilla.maintenance.rebuild_head import confirm_head
from lakevilla.results import CommitResult
from lakevilla.store.effects import Program, parallel, sleep
from lakevilla.sublogs.operations import Guard
from lakevilla.sublogs.record import created_by
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.read_write import append, execute, scan
from lakevilla_testing.checks.history import Recorded
from lakevilla_testing.histories import followers, givers, keepers, reshaping, verdict
from lakevilla_testing.histories.attempts import (
    BALANCE,
    COLUMNS,
    FREQUENT,
    SCHEMA,
    World,
    context_of,
    set_wrong,
)
from lakevilla_testing.histories.drawn import KINDS, how_to_replay
from lakevilla_testing.histories.meetings import Meeting, meetings
from lakevilla_testing.histories.plan import (
    RECREATED,
    TABLES,
    UPGRADED,
    LakeFormat,
    Plan,
    draw,
    small_limits,
)
from lakevilla_testing.histories.workloads import user
from lakevilla_testing.tables import delta_cleaner, delta_writer, iceberg_writer
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.faults import Fault, NoFaults, RandomFaults, outages, swarm
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.schedules import PrioritySchedule, RandomSchedule
from lakevilla_testing.world.store import SimulatedStore
from lakevilla_testing.world.trace import Line

T = TypeVar("T")

#: VACUUM's retention; far above ``max_age_seconds``, as hazard 6 requires.
_VACUUM_SECONDS = 7 * 24 * 3600.0
_LOG_RETENTION_SECONDS = 3 * 3600.0
#: Properties of an Iceberg table whose writers keep few metadata files.
_FEW_VERSIONS = {
    "write.metadata.previous-versions-max": "4",
    "write.metadata.delete-after-commit.enabled": "true",
}
#: The clients without LakeVilla, by the format that they know.
_CLIENTS: dict[FormatName, Any] = {"delta": delta_writer, "iceberg": iceberg_writer}


@dataclass(frozen=True)
class CampaignOutcome:
    """The result of a history: its store, and figures about it."""

    plan: Plan
    store: SimulatedStore
    fired: Counter[Fault]
    ended: Counter[str]
    events: Counter[str]
    #: The number of times that transactions of two kinds worked on one table at the same time.
    meetings: Counter[Meeting]
    requests: int
    trace_hash: str
    #: The history of the lists, where something was promised of what its clients have read.
    recorded: Recorded | None = None


class HistoryFailed(AssertionError):
    """An invariant does not hold; the message names the seed that replays the history."""


def run(
    seed: int,
    *,
    plan: Plan | None = None,
    simulation: Simulation | None = None,
    hashing: bool = False,
) -> CampaignOutcome:
    """Run one history, in the simulation that belongs to the seed or in a given one.

    Raises
    ------
    HistoryFailed
        With the seed.
    """
    outcome, _, error = replay(seed, plan=plan, simulation=simulation, hashing=hashing)
    if error is not None:
        raise HistoryFailed(
            f"seed {seed}: {type(error).__name__}: {error}\n"
            f"replay it with: {how_to_replay(outcome.plan)}"
        ) from error
    return outcome


def replay(
    seed: int,
    *,
    plan: Plan | None = None,
    simulation: Simulation | None = None,
    hashing: bool = False,
) -> tuple[CampaignOutcome, list[Line], Exception | None]:
    """Run one history; return its outcome, its trace and its error."""
    plan = draw(seed) if plan is None else plan
    source = random.Random(f"{seed}/schedule")
    faults = random.Random(f"{seed}/faults")
    simulation = simulation or Simulation(
        seed,
        schedule=PrioritySchedule(source) if seed % 2 else RandomSchedule(source),
        faults=RandomFaults(_rates(plan, faults), faults, plan.settings.lease_seconds)
        if plan.intensity
        else NoFaults(),
        settings=plan.settings,
        content_tags=plan.content_tags,
        clock_rates=seed % 3 == 0,
        seconds_between_writes=1.0 if plan.limited else 0.0,
    )
    world = World(simulation, plan)
    error: Exception | None = None
    hot = plan.crowded and plan.combined
    limits = small_limits(
        plan.short, crowded=plan.crowded, whole=plan.whole, hot=hot, window=plan.window
    )
    with limits:
        try:
            _play(world)
            simulation.store.seconds_between_writes = 0.0  # the checks take no time
            _finish(world)
        except Exception as raised:
            error = raised
    ended = Counter(f"{attempt.kind} {attempt.status}" for attempt in world.attempts)
    digest = simulation.trace_hash() if hashing or error is not None else ""
    outcome = CampaignOutcome(
        plan,
        simulation.store,
        simulation.fired,
        ended,
        world.events,
        meetings(world),
        len(simulation.trace),
        digest,
        world.recorded,
    )
    simulation.dispose()
    return outcome, simulation.trace, error


def _rates(plan: Plan, faults: random.Random) -> dict[Fault, float]:
    # From a separate source of randomness, and last: all other faults strike as without this one.
    lost = outages(random.Random(f"{plan.seed}/outages"), plan.intensity)
    return {**swarm(faults, plan.intensity), **lost}


def figures(
    seed: int, formats: LakeFormat = "delta", kind: str = "all"
) -> tuple[int, dict[str, Counter[str]], int, str | None]:
    """Return one history in numbers, for a caller that runs many in other processes.

    The seed, counts (faults, events, outcomes of transactions), requests, and the error.
    """
    outcome, _, error = replay(seed, plan=KINDS[kind](seed, formats))
    fired = Counter({fault.value: count for fault, count in outcome.fired.items()})
    violation = None if error is None else f"{type(error).__name__}: {error} ({outcome.plan})"
    counts = {"faults": fired, "events": outcome.events, "transactions": outcome.ended}
    return seed, counts, outcome.requests, violation


def _play(world: World) -> None:
    simulation, plan = world.simulation, world.plan
    simulation.add("setup", lambda client: _set_up(client, plan), faulty=False)
    simulation.run()
    # A list that is stale by seconds still shows the tables.
    simulation.now += 3600
    play_clients(world)


def play_clients(world: World) -> None:
    """Run the plan's clients, on the existing tables, until all writes have taken effect."""
    simulation, plan = world.simulation, world.plan
    for number in range(plan.clients):
        program = user(world)
        simulation.add(f"c{number}", program, restart=program)
    if plan.foreign:
        simulation.add("foreign", lambda client: _intrude(world, client))
    if plan.collects:
        simulation.add("janitor", lambda client: _collect(world, client))
    for number in range(plan.keepers):
        simulation.add(f"k{number}", lambda client: keepers.keep(world, client))
    for number in range(plan.followers):
        following = followers.follower(world)
        simulation.add(f"f{number}", following, restart=following)
    for number in range(plan.givers):
        giving = givers.giver(world)
        simulation.add(f"g{number}", giving, restart=giving)
    simulation.run()
    simulation.land_delayed_writes()


def _set_up(client: Client, plan: Plan) -> Program[None]:
    rows = [
        {"id": number, "balance": balance, "items": ""}
        for number, balance in ((0, 0), (1, 0), (2, BALANCE), (3, BALANCE), (4, 1))
    ]
    for table in TABLES:
        kind = plan.format_of(table)
        properties = FREQUENT[kind] if plan.short else {}
        if kind == "iceberg" and plan.few_versions:
            properties = {**properties, **_FEW_VERSIONS}
        clients = _CLIENTS[kind]
        marked = {"marks": True} if plan.marks else {}
        if plan.reshaped:
            yield from reshaping.set_up(client, clients, kind, table, rows, properties)
            continue
        # One table is upgraded later.
        version = {"version": plan.version} if kind == "iceberg" and table != UPGRADED else {}
        own: dict[str, Any] = {**version, **marked}
        yield from clients.create(client, table, COLUMNS, rows[:3], properties=properties, **own)
        yield from clients.append(client, table, rows[3:])
    client.simulation.fired.clear()
    if plan.guarded:
        context = context_of(client)
        for table in client.random.sample(TABLES, 2):
            if plan.format_of(table) == "iceberg":
                continue  # Iceberg has no guards
            txn = begin(
                TransactionState(context, client.ids.txn_id(), Options(Feature.R | Feature.I))
            )
            txn.through_head = True
            yield from execute(txn, Guard(table, True), "guard")
            yield from commit(txn)


def _intrude(world: World, client: Client) -> Program[None]:
    """Run the client without LakeVilla."""
    plan = world.plan
    for _ in range(4):
        longest = 3 * 3600.0 if plan.long and client.random.random() < 0.5 else 3.0
        yield from sleep(longest * client.random.random())
        table = client.random.choice(TABLES)
        began = world.simulation.now
        try:
            yield from _foreign_act(world, client, table, client.random.choice(plan.foreign))
        except StoreError:
            continue
        world.foreign_acts.append((table, began, world.simulation.now))


def _foreign_act(world: World, client: Client, table: str, kind: str) -> Program[None]:
    if kind == "recreate":
        # No guarantee holds for a table that other clients tear down; the rest of the lake goes
        # on.
        clients = _CLIENTS[world.plan.format_of(RECREATED)]
        yield from clients.drop_and_recreate(client, RECREATED, COLUMNS, [])
        return
    form = world.plan.format_of(table)
    clients = _CLIENTS[form]
    match kind:
        case "append":
            number = 1_000_000 + world.value()
            row = {"id": number, "balance": 0, "items": ""}
            if (yield from clients.append(client, table, [row])):
                world.foreign_rows.append((table, number))
        case "rewrite":
            yield from clients.rewrite(client, table, dict, files=client.random.choice((1, None)))
        case "mark" if form == "delta":
            number = client.random.randint(0, 4)
            yield from delta_writer.mark(
                client, table, lambda row: dict(row) if row["id"] == number else row
            )
        case "upgrade":
            yield from iceberg_writer.upgrade(client, UPGRADED)
        case "beside":
            row = {"id": 2_000_000 + world.value(), "balance": 0, "items": ""}
            yield from iceberg_writer.commit_beside(client, table, [row])
        case "touch" if world.plan.marks and form == "iceberg":
            yield from iceberg_writer.mark(client, table, _touched)
        case "touch":
            yield from clients.rewrite(client, table, _touched)
        case "optimize":
            yield from clients.optimize(client, table)
        case "property":
            yield from clients.set_property(client, table, "note", str(world.value()))
        case "checkpoint" if form == "iceberg":
            yield from iceberg_writer.rewrite_manifests(client, table)
        case "checkpoint":
            yield from delta_cleaner.write_checkpoint(client, table)
        case "clean" if form == "iceberg":
            yield from iceberg_writer.expire(client, table, _LOG_RETENTION_SECONDS)
        case "clean":
            yield from delta_cleaner.write_checkpoint(client, table)
            yield from delta_cleaner.clean_log(client, table, _LOG_RETENTION_SECONDS)
        case "reshape":
            yield from reshaping.foreign_act(world, client, clients, form, table)
        case "restore":
            yield from clients.restore(client, table, client.random.randint(1, 2))


def _touched(row: Any) -> dict[str, Any]:
    """Change this client's rows; all other rows stay unchanged."""
    return {**row, "balance": row["balance"] + (1 if row["id"] > 1_000_000 else 0)}


def _collect(world: World, client: Client) -> Program[None]:
    set_wrong(world, client)
    context = context_of(client)
    for _ in range(3):
        longest = 6 * 3600.0 if world.plan.long else 600.0 if client.random.random() < 0.3 else 3.0
        yield from sleep(longest * client.random.random())
        try:
            yield from gc.gc(context)
        except LakeVillaError as error:
            torn_down = error.kind == "corrupt_object" and "recreate" in world.plan.foreign
            # "conflict": a client that died just before it replaced HEAD has left a leaf of the
            # next HEAD.
            if error.kind not in ("store", "outcome_unknown", "conflict") and not torn_down:
                raise
        else:
            client.simulation.fired[Fault.CLEAN_UP] += 1


# ------------------------------------------------------------------ the end


def _finish(world: World) -> None:
    """Recover from another process, check everything, clean up, check again."""
    simulation = world.simulation

    def recover(client: Client) -> Program[Any]:
        return recovery.recover(context_of(client))

    if world.plan.neglected:
        _neglect(world)
    known = verdict.voided(world)
    report = alone(world, "recoverer", recover)
    verdict.voids_are_reported(world, known, report)
    verdict.check(world)
    writer = Client(simulation, "writer", f"{simulation.seed}/writer", 1.0)
    verdict.nothing_is_blocked(world, lambda tables: _one_row_each(writer, tables))
    verdict.queues_are_empty(world)
    helper = Client(simulation, "helper", f"{simulation.seed}/helper", 1.0)
    verdict.recovered_once_is_enough(world, lambda: recover(helper))
    before = verdict.rows_by_table(world)
    _check_reading(world, before)
    if world.plan.followers:
        verdict.copies_are_right(world)
    if world.plan.keepers:
        _release(world)
    # Long after: no transaction of the history may commit any more. Clocks are wrong by hours, and
    # by a tenth of the time that has passed.
    simulation.now = 1.3 * (simulation.now + world.plan.settings.max_age_seconds) + 4 * 3600
    if "recreate" not in world.plan.foreign:
        _confirm(world, "operator")
        alone(world, "collector", lambda client: gc.gc(context_of(client)))
        # The first gc notes where an undecided transaction was to create a table, the second
        # deletes what is stored there, and the last one finds nothing there and deletes the note.
        for name in ("next collector", "last collector"):
            if any(map(created_by, simulation.store.objects)):
                alone(world, name, lambda client: gc.gc(context_of(client)))
        verdict.nothing_is_left_over(world)
    simulation.now += _VACUUM_SECONDS + 3600
    alone(world, "own vacuum", lambda client: parallel([_vacuum(client, t) for t in TABLES]))
    verdict.same_rows(world, before)

    def others(client: Client) -> Program[Any]:
        return parallel([_tidy(world.plan, client, table) for table in TABLES])

    alone(world, "vacuum", others)
    verdict.same_rows(world, before)


def _confirm(world: World, name: str) -> None:
    """Confirm HEAD: after a client has died with all objects stored, HEAD looks as if set back by
    one.
    """
    alone(world, name, lambda client: confirm_head(context_of(client)))


def _release(world: World) -> None:
    """Check that refs keep their states after all clean-ups of the lake; then delete the refs."""
    plan = world.plan
    verdict.refs_are_kept(world)

    def ours(client: Client) -> Program[Any]:
        yield from gc.gc(context_of(client))
        yield from parallel([_vacuum(client, table, 60.0) for table in TABLES])

    _confirm(world, "owner")
    for name, seconds in (("soon", 3600.0), ("late", 1.3 * plan.settings.max_age_seconds + 14400)):
        world.simulation.now += seconds
        alone(world, f"cleaner {name}", ours)
        verdict.refs_are_kept(world)
    alone(world, "owner of refs", lambda client: keepers.delete_all(context_of(client)))


def _neglect(world: World) -> None:
    """Wait a week and clean up around pending commits; then other clients rewrite each table."""
    simulation, plan = world.simulation, world.plan
    simulation.now += _VACUUM_SECONDS + 24 * 3600
    tables = [t for t in TABLES if not ("recreate" in plan.foreign and t == RECREATED)]

    def ours(client: Client) -> Program[Any]:
        yield from gc.gc(context_of(client))
        yield from parallel([_vacuum(client, table) for table in tables])

    def others(client: Client) -> Program[Any]:
        if plan.neglected == "others":
            yield from parallel([_tidy(plan, client, table) for table in tables])
        for table in tables:
            clients = _CLIENTS[plan.format_of(table)]
            yield from clients.rewrite(client, table, dict)

    if "recreate" not in plan.foreign:
        _confirm(world, "operator of the neglectful")
        alone(world, "neglectful", ours)
    alone(world, "others", others)


def _one_row_each(client: Client, tables: Sequence[str]) -> Program[CommitResult]:
    """Add a row to each table by a fresh client."""
    context = context_of(client)
    held = yield from context.head()
    floor = NO_TXN if held is None else held.head.floor
    txn = begin(
        TransactionState(context, context.ids.txn_id(above=floor), Options(Feature.R | Feature.I))
    )
    txn.through_head = True
    rows = pa.table({"id": [0], "balance": [0], "items": [""]}, schema=SCHEMA)
    for table in tables:
        yield from append(txn, table, rows.to_reader())
    return (yield from commit(txn))


def _tidy(plan: Plan, client: Client, table: str) -> Program[int]:
    """Delete as another client the files that no version names any more."""
    if plan.format_of(table) == "iceberg":
        return iceberg_writer.remove_orphans(client, table, _VACUUM_SECONDS)
    return delta_cleaner.vacuum(client, table, _VACUUM_SECONDS)


def _vacuum(client: Client, table: str, retention: float | None = None) -> Program[None]:
    try:
        yield from vacuum.vacuum(
            context_of(client),
            table,
            retention_seconds=retention,
            dry_run=False,
            enforce_retention=retention is None,
        )
    except LakeVillaError as error:
        # Another client has made the table again, or its state can't be determined.
        if error.kind not in ("table_not_found", "version_not_found", "corrupt_object"):
            raise


def alone(world: World, name: str, program: Callable[[Client], Program[T]]) -> T:
    """Run one more client to its end, alone and without faults; return its result."""
    fired = Counter(world.simulation.fired)
    client = world.simulation.add(name, program, faulty=False)
    world.simulation.run()
    # This client does not get the faults of the history's clients.
    world.simulation.fired.clear()
    world.simulation.fired.update(fired)
    result: T = client.result
    return result


def _check_reading(world: World, expected: dict[str, list[Any]]) -> None:
    """Check that a new client bound to HEAD reads the same as a reader of the bare format."""
    client = Client(world.simulation, "reader", f"{world.simulation.seed}/reader", 1.0)
    options = Options(Feature.I, read_only=True)
    txn = begin(
        TransactionState(context_of(client), client.ids.txn_id(), options, through_head=True)
    )
    for table in expected:
        if _is_dropped(world, client, table):
            continue
        found = run_now(world.simulation.store, scan(txn, table, None, None)).read_all().to_pylist()
        verdict.equal_rows(table, found, expected[table])


def _is_dropped(world: World, client: Client, table: str) -> bool:
    held = run_now(world.simulation.store, context_of(client).head())
    head: Head | None = None if held is None else held.head
    run_now(world.simulation.store, load_tables(head))
    return head is not None and table in head.tables and head.tables[table].dropped

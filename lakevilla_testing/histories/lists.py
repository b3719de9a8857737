"""Short histories that only read and append to lists, many a second; the checker of isolation
judges each.

``campaign`` checks everything of a history and takes its time. Most anomalies need two or three
transactions that share two keys, and the right interleaving. So here the lake is made once and
copied, two to six transactions read and append to four lists, and the check is whether some order
explains their reads, in real time.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import cache

from lakevilla.maintenance import recovery
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Update
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.read_write import execute
from lakevilla_testing.checks.history import Recorded
from lakevilla_testing.histories import campaign, verdict
from lakevilla_testing.histories.attempts import COLUMNS, CONTENDED, World, context_of
from lakevilla_testing.histories.plan import SERIALIZABLE, Level, Plan
from lakevilla_testing.tables import delta_writer
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.faults import Fault, NoFaults, RandomFaults, swarm
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.schedules import PrioritySchedule, RandomSchedule
from lakevilla_testing.world.store import SimulatedStore

_RI = Feature.R | Feature.I
_RCTI = Feature.R | Feature.CT | Feature.I
MIXES = ((_RI,), (_RI,), (_RCTI,), (_RI, _RCTI))
_SNAPSHOT = Level("snapshot")
#: The numbers of clients, of threads of each client, and of transactions of each thread.
_SHAPES = ((2, 1, 1), (2, 1, 2), (3, 1, 1), (3, 1, 2), (2, 2, 1), (1, 3, 1), (1, 2, 2), (4, 1, 1))
_LEVELS = ((_SNAPSHOT,), (_SNAPSHOT, SERIALIZABLE), (Level(slack=1), SERIALIZABLE))


@dataclass(frozen=True)
class ListHistory:
    """The result of a history: its plan, and the outcomes of its transactions."""

    plan: Plan
    ended: Counter[str]
    #: Pairs of committed transactions that were under way at the same time.
    overlapping: int
    #: What its clients did and read; None if the history failed before that was known.
    recorded: Recorded | None


def draw(seed: int) -> Plan:
    """Draw two to six transactions with Feature.I, of which some have Feature.CT."""
    source = random.Random(f"{seed}/lists")
    clients, threads, transactions = source.choice(_SHAPES)
    return Plan(
        seed,
        features=source.choice(MIXES),
        kinds=("contended",),
        foreign=("append",) if source.random() < 0.1 else (),
        clients=clients,
        threads=threads,
        transactions=transactions,
        # Half of the histories have no faults: there everything overlaps as scheduled.
        intensity=source.choice((0.0, 0.0, 1.0, 2.0)),
        attempts=source.choice((1, 2, 3)),
        levels=source.choice(_LEVELS) if source.random() < 0.15 else (SERIALIZABLE,),
    )


def run(seed: int) -> ListHistory:
    """Run and check one history.

    Raises
    ------
    campaign.HistoryFailed
        With the seed.
    """
    history, error = replay(seed)
    if error is not None:
        raise campaign.HistoryFailed(
            f"seed {seed} of short histories: {type(error).__name__}: {error} ({history.plan})\n"
            f"replay it with: lakevilla_testing.histories.lists.run({seed})"
        ) from error
    return history


def replay(seed: int) -> tuple[ListHistory, Exception | None]:
    """Run and check one history; return it, and what is wrong with it."""
    plan = draw(seed)
    source = random.Random(f"{seed}/schedule")
    made = _lake_as_log() if seed % 8 == 7 and plan.features == (_RI,) else _lake()
    simulation = Simulation(
        seed,
        schedule=PrioritySchedule(source) if seed % 2 else RandomSchedule(source),
        faults=_faults(plan),
        settings=plan.settings,
        clock_rates=seed % 3 == 0,
    )
    simulation.store.replaces = made.replaces
    simulation.store.objects = dict(made.objects)
    simulation.store.journal = list(made.journal)
    # A list that is stale by seconds still shows the tables.
    simulation.now = 3600.0
    world = World(simulation, plan)
    failed: Exception | None = None
    try:
        campaign.play_clients(world)
        campaign.alone(world, "recoverer", lambda client: recovery.recover(context_of(client)))
        verdict.lists_are_explained(world)
    except Exception as error:
        failed = error
    finally:
        simulation.dispose()
    committed = [a.record for a in world.attempts if a.status == "committed"]
    history = ListHistory(
        plan,
        Counter(attempt.status for attempt in world.attempts),
        sum(
            one.completed is not None and one.invoked < other.invoked < one.completed
            for one in committed
            for other in committed
        ),
        world.recorded,
    )
    return history, failed


def _faults(plan: Plan) -> NoFaults | RandomFaults:
    if not plan.intensity:
        return NoFaults()
    source = random.Random(f"{plan.seed}/faults")
    rates = swarm(source, plan.intensity)
    # A first read by a stale list is stale itself, so that real time could not be checked.
    rates.pop(Fault.STALE_LIST, None)
    return RandomFaults(rates, source, plan.settings.lease_seconds)


# -- the lake with which all histories begin ------------------------------------------


@cache
def _lake() -> SimulatedStore:
    """Return two tables of two lists each, known to HEAD."""
    return _made(replaces=True)


@cache
def _lake_as_log() -> SimulatedStore:
    return _made(replaces=False)


def _made(*, replaces: bool) -> SimulatedStore:
    maker = Simulation(0)
    maker.store.replaces = replaces

    def set_up(client: Client) -> Program[None]:
        txn = begin(
            TransactionState(
                context_of(client), client.ids.txn_id(), Options(_RI), through_head=True
            )
        )
        for table in CONTENDED:
            rows = [{"id": number, "balance": 0, "items": ""} for number in (0, 1)]
            yield from delta_writer.create(client, table, COLUMNS, rows)
            # A write, so that the commit adds the table to HEAD.
            yield from execute(txn, _pushed_nothing(table), "update")
        yield from commit(txn)

    maker.add("setup", set_up, faulty=False)
    maker.run()
    return maker.store


def _pushed_nothing(table: str) -> Update:
    return Update(table, {"balance": parse_expression("balance")}, parse_predicate("true"))

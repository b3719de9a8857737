"""Play drawn histories: rollbacks, reverts and cherry-picks among writers, vacuums and foreign
clients.
"""

import random
from collections import Counter

import pytest

from lakevilla.branches.change import delete_ref
from lakevilla.branches.create import create_ref
from lakevilla.errors import LakeVillaError
from lakevilla.global_log.commits import COMMITS_PREFIX, CommitObject
from lakevilla.maintenance import recovery, vacuum
from lakevilla.maintenance.gc import gc
from lakevilla.store.codec import decode
from lakevilla.store.effects import sleep
from lakevilla.sublogs.operations import Transplant
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.applying.apply import apply, roll_back
from lakevilla.transaction.verbs.optimize import optimize
from lakevilla.transaction.verbs.read_write import scan
from lakevilla_testing.checks.applied import rollbacks_came_to_what_was
from lakevilla_testing.checks.invariants import (
    all_or_nothing,
    every_table_is_readable,
    no_id_commits_twice,
)
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.tables import delta_writer, iceberg_writer
from lakevilla_testing.world.faults import RandomFaults, swarm
from lakevilla_testing.world.schedules import PrioritySchedule, RandomSchedule
from tests.support.search import WHOLE, how_many
from tests.support.simulated.commits import TABLES, add_to, alone, begin, end, lake

SEEDS = how_many(2, whole=24, soak=200)
HOUR = 3600.0
#: The errors that each act may raise next to other clients, and on a store that fails.
MAY_FAIL = {
    "store",
    "outcome_unknown",
    "conflict",
    "aborted",
    "merge_conflict",
    "foreign_conflict",
    "version_not_found",
    "table_not_found",
    "ref_exists",
    "ref_not_found",
    "corrupt_object",
}
KEYS = dict.fromkeys(TABLES, ("id",))


class History:
    """Play one history, drawn from its seed."""

    def __init__(self, seed, iceberg, *, foreign):
        source = random.Random(f"{seed}/schedule")
        faults = random.Random(f"{seed}/faults")
        rates = swarm(faults, 0.4)
        self.simulation = lake(
            RandomFaults(rates, faults),
            PrioritySchedule(source) if seed % 2 else RandomSchedule(source),
            iceberg=iceberg,
            seed=seed,
        )
        self.iceberg = iceberg
        self.ended = Counter()
        for number in range(2):
            self.add(f"writer {number}", ("transfer",) * 4, 6)
        acts = ("rollback", "rollback", "revert", "revert by keys", "pick", "pick by keys")
        for number in range(2):
            self.add(f"mover {number}", acts, 6)
        self.add("janitor", ("vacuum", "vacuum", "gc", "optimize", "tag", "untag"), 8)
        if foreign:
            self.add("foreign", ("rewrite", "rewrite", "reorder"), 4)

    def add(self, name, acts, count):
        left = iter(range(count))

        def program(client):
            for _ in left:  # a client that replaces a dead one continues where that was
                yield from sleep(client.random.random() * client.random.choice((2.0, 4 * HOUR)))
                act = client.random.choice(acts)
                try:
                    ended = yield from self.act(client, act)
                except LakeVillaError as error:
                    if error.kind not in MAY_FAIL:
                        raise
                    ended = error.kind
                self.ended[act, ended] += 1

        self.simulation.add(name, program, restart=program)

    def act(self, client, act):
        table = client.random.choice(TABLES)
        other = iceberg_writer if table in self.iceberg else delta_writer
        match act:
            case "transfer":
                txn = begin(client)
                amount = client.random.randint(1, 9)
                yield from add_to(txn, "a", -amount, client.random.randint(0, 1))
                yield from add_to(txn, "b", amount, client.random.randint(0, 1))
                yield from commit(txn)
            case "vacuum":
                hours = client.random.choice((5, 9))
                yield from vacuum.vacuum(
                    context_of(client),
                    table,
                    retention_seconds=hours * HOUR,
                    dry_run=False,
                    enforce_retention=False,
                )
            case "gc":
                yield from gc.gc(context_of(client))
            case "tag":
                yield from tagged(context_of(client))
            case "untag":
                yield from delete_ref(context_of(client), "kept")
            case "optimize":
                txn = begin(client)
                yield from optimize(txn, table)
                yield from commit(txn)
            case "rewrite":
                yield from other.rewrite(client, table, dict)
            case "reorder":
                yield from other.optimize(client, table)
            case _:
                return (yield from self.move(client, act))
        return "done"

    def move(self, client, act):
        """Roll back to a version, revert a commit, or apply a commit again."""
        context = context_of(client)
        held = yield from context.head()
        first, last = held.head.history_start, held.head.sequence
        version = client.random.randint(min(max(first, 1) + 1, last), last)
        keys = KEYS if act.endswith("keys") else {}
        for _ in range(3):
            txn = begin(client)
            try:
                if act == "rollback":
                    tagged_one = client.random.random() < 0.3
                    to = ("ref", "kept") if tagged_one else ("version", version)
                    outcomes = yield from roll_back(txn, to)
                else:
                    states = ("version", version), ("version", version - 1)
                    if act.startswith("pick"):
                        states = states[::-1]
                    outcomes = yield from apply(txn, *states, keys=keys)
                yield from commit(txn)
            except LakeVillaError as error:
                yield from end(txn)
                if error.kind != "conflict":
                    raise
            else:
                return "/".join(sorted(set(outcomes.values()))) or "nothing"
        return "conflict"

    def run(self):
        simulation = self.simulation
        simulation.run()
        simulation.land_delayed_writes()
        simulation.now += 40 * HOUR
        alone(simulation, lambda client: recovery.recover(context_of(client)), "rescuer")
        store = simulation.store
        every_table_is_readable(store, TABLES)
        no_id_commits_twice(store, TABLES)
        all_or_nothing(store, TABLES)
        rows = {table: alone(simulation, rows_of(table), f"reader of {table}") for table in TABLES}
        for table, found in rows.items():
            assert sorted(row["id"] for row in found) == [0, 1], (table, found)
        self.halved = self.is_halved()
        if not self.halved:
            total = sum(row["balance"] for found in rows.values() for row in found)
            assert total == 400, rows
        self.compared = rollbacks_came_to_what_was(store)
        simulation.dispose()
        return self

    def is_halved(self):
        """Return whether a commit took effect on one table alone.

        Either a foreign writer has made it void on the other table, or the other table had the
        commit's result already, by chance.
        """
        commits = [
            decode(one.key, one.after.body, CommitObject)
            for one in self.simulation.store.journal
            if one.key.startswith(COMMITS_PREFIX) and one.after is not None
        ]
        moved = [{op.table for op in one.operations if is_moving(op)} for one in commits]
        return any(one.voided for one in commits) or any(len(tables) == 1 for tables in moved)


def is_moving(operation):
    return isinstance(operation, Transplant) and not operation.exact


def rows_of(table):
    def program(client):
        return (yield from scan(begin(client), table, None, None)).read_all().to_pylist()

    return program


def tagged(context):
    yield from create_ref(
        context, "kept", "tag", None, tables=None, protected=False, metadata={}, created_by=""
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("foreign", [False, True], ids=["alone", "beside others"])
@pytest.mark.parametrize("iceberg", [(), TABLES, ("b",)], ids=["delta", "iceberg", "mixed"])
def test_rollbacks_reverts_and_cherry_picks_have_their_effect_in_drawn_histories(iceberg, foreign):
    ended, compared, halved = Counter(), 0, 0
    for seed in range(SEEDS):
        history = History(seed, iceberg, foreign=foreign).run()
        ended += history.ended
        compared += history.compared
        halved += history.halved
    if WHOLE:
        assert compared > SEEDS, ended
        assert halved < SEEDS / 2
        for act in ("rollback", "revert", "revert by keys"):
            assert ended[act, "physical"] > 0, ended
        if foreign:  # without the foreign writer only an optimize moves files
            assert sum(n for (_, outcome), n in ended.items() if "rows" in outcome) > 0, ended

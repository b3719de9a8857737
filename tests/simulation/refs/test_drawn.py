"""Play drawn histories of the lake and its branches together, with faults at any request.

Clients append to the lake and to branches, rewrite files on both, merge, rebase, tag, end branches
and make them again, vacuum, collect and recover. Clients without LakeVilla append to the tables. At
the end each acknowledged row is once where its client wrote it, and no refused row exists.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from lakevilla.branches.change import all_refs, delete_ref
from lakevilla.branches.create import create_ref
from lakevilla.branches.rebase import Wanted, rebase_branch
from lakevilla.errors import LakeVillaError
from lakevilla.maintenance import recovery, vacuum
from lakevilla.maintenance.gc import gc
from lakevilla.settings import Settings
from lakevilla.store.effects import sleep
from lakevilla.transaction.commit import squash
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.applying.merge_branch import merge_branch
from lakevilla.transaction.verbs.read_write import append, bind_to_ref, scan
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.tables import delta_writer, iceberg_writer
from lakevilla_testing.world.faults import RandomFaults, outages, swarm
from tests.support.search import WHOLE, how_many
from tests.support.simulated.branches import on_branch
from tests.support.simulated.commits import add_to, alone, begin, lake

HISTORIES = how_many(1, whole=10, soak=300)
HOURS = 3600.0
BRANCHES = ("etl", "fix")
#: With these settings a rebase removes older epochs within the history.
FORGETFUL = Settings(max_age_seconds=1800.0, outcome_retention_seconds=2 * HOURS)
ACTS = (
    *["append", "append on branch", "append on branch", "merge", "merge"],
    *["rebase", "rebase", "update", "update on branch", "vacuum", "gc", "tag", "end", "begin"],
    *["recover", "append by others", "append by others"],
)
#: The errors that an act may raise because of other clients and of faults.
MAY_FAIL = {
    *["store", "outcome_unknown", "conflict", "aborted", "ref_not_found", "ref_exists"],
    *["version_not_found", "merge_conflict", "foreign_conflict", "invalid_operation"],
}


@dataclass
class Outcomes:
    """The committed rows, by branch and the id of its entry; "" is the lake."""

    acknowledged: set[tuple[str, str, int]] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)
    pairs: int = 1
    numbers: int = 100
    rebased: int = 0

    def number(self):
        self.numbers += 1
        self.doubtful.add(self.numbers)
        return self.numbers

    def settle(self, number, acknowledged):
        self.doubtful.discard(number)
        if acknowledged is None:
            self.refused.add(number)
        else:
            self.acknowledged.add((*acknowledged, number))


def appends(outcomes, client, context, where):
    number = outcomes.number()
    rows = pa.Table.from_pylist([{"id": number, "balance": 1, "items": ""}])
    txn = begin(client, context=context)
    try:
        yield from append(txn, "a", rows.to_reader())
        yield from commit(txn)
    except LakeVillaError as error:
        if error.kind == "foreign_conflict":
            outcomes.settle(number, where)
        elif error.kind != "outcome_unknown":
            outcomes.settle(number, None)
        raise
    outcomes.settle(number, where)


def updates(client, context, row):
    txn = begin(client, context=context)
    yield from add_to(txn, "a", 1, row)
    yield from commit(txn)


def makes(client, name, kind, at):
    return create_ref(
        context_of(client), name, kind, at, tables=None, protected=False, metadata={}, created_by=""
    )


def act(outcomes, client, what, others):
    draw = client.random
    name = draw.choice(BRANCHES)
    match what:
        case "append":
            yield from appends(outcomes, client, context_of(client), ("", ""))
        case "append on branch":

            def work(context):
                epoch = context.held.head.epoch
                yield from appends(outcomes, client, context, (name, epoch.ref_id))

            yield from on_branch(client, name, work)
        case "update":
            row = 2 * draw.randrange(outcomes.pairs)
            yield from updates(client, context_of(client), row)
        case "update on branch":
            row = 2 * draw.randrange(outcomes.pairs) + 1
            yield from on_branch(client, name, lambda context: updates(client, context, row))
        case "merge":
            txn = begin(client)
            yield from merge_branch(txn, name, keys={})
            yield from commit(txn)
        case "rebase":
            keys = draw.choice(({}, {"a": ("id",)}))
            yield from rebase_branch(context_of(client), name, Wanted(keys))
            outcomes.rebased += 1
        case "recover":
            yield from recovery.recover(context_of(client), client.name)
        case "vacuum":
            yield from vacuum.vacuum(
                context_of(client),
                "a",
                retention_seconds=draw.choice((6 * HOURS, 9 * HOURS)),
                dry_run=False,
                enforce_retention=False,
            )
        case "gc":
            yield from gc.gc(context_of(client))
        case "append by others":
            number = outcomes.number()
            row = {"id": number, "balance": 1, "items": ""}
            if (yield from others.append(client, "a", [row])):
                outcomes.settle(number, ("", ""))
        case "tag":
            at = draw.choice((None, ("ref", name)))
            yield from makes(client, f"tag-{draw.randrange(6)}", "tag", at)
        case "end":
            if draw.random() < 0.3:
                yield from delete_ref(context_of(client), name)
        case "begin":
            yield from makes(client, name, "branch", None)


def client_of(outcomes, others):
    # A client that dies goes on with the acts that are left: under many crashes, a client that
    # began anew would never end.
    left = iter(range(9))

    def program(client):
        for _ in left:
            longest = 8 * HOURS if client.random.random() < 0.2 else 3.0
            yield from sleep(longest * client.random.random())
            try:
                yield from act(outcomes, client, client.random.choice(ACTS), others)
            except LakeVillaError as error:
                if error.kind not in MAY_FAIL:
                    raise

    return program


def rows_of(client, context, frozen=None):
    txn = begin(client, context=context, read_only=True)
    if frozen is not None:
        bind_to_ref(txn, frozen)
    rows = yield from scan(txn, "a", None, None)
    return Counter(row["id"] for row in rows.read_all().to_pylist())


def history(seed, iceberg):
    """Play one history, and check its end."""
    draw = random.Random(f"{seed}/drawn")
    settings = draw.choice((Settings(), FORGETFUL))
    # In each second history, the rows of one table are marked as deleted, where they are changed.
    marked = () if iceberg or seed % 2 else ("a",)
    simulation = lake(
        iceberg=iceberg, marked=marked, seed=seed, clock_rates=True, settings=settings
    )
    for name in BRANCHES:
        alone(simulation, lambda client, name=name: makes(client, name, "branch", None), name)
    rates = {**swarm(draw, draw.choice((0.2, 1.0))), **outages(draw)}
    simulation.faults = RandomFaults(rates, random.Random(f"{seed}/faults"))
    outcomes = Outcomes(pairs=5 if marked else 1)
    others = iceberg_writer if iceberg else delta_writer
    for number in range(4):
        program = client_of(outcomes, others)
        simulation.add(f"client {number}", program, restart=program)
    simulation.run()
    simulation.land_delayed_writes()
    try:
        check(simulation, outcomes)
    finally:
        simulation.dispose()
    return outcomes


def check(simulation, outcomes):
    def refs(client):
        return (yield from all_refs(context_of(client)))

    def main(client):
        return (yield from rows_of(client, context_of(client)))

    def merge(name):
        def program(client):
            txn = begin(client)
            try:
                yield from merge_branch(txn, name, keys={})
                yield from commit(txn)
            except LakeVillaError as error:
                return error.kind
            return "merged"

        return program

    def rebase(name):
        def program(client):
            try:
                yield from rebase_branch(context_of(client), name, Wanted({"a": ("id",)}))
            except LakeVillaError as error:
                return error.kind
            return "rebased"

        return program

    for round_ in range(3):
        found = alone(simulation, refs, f"looker {round_}")
        for name, (entry, _) in found.items():
            shown = alone(
                simulation,
                lambda client, name=name: on_branch(
                    client, name, lambda context, frozen=None: rows_of(client, context, frozen)
                ),
                f"reader of {name} {round_}",
            )
            mine = {
                n for place, key, n in outcomes.acknowledged if (place, key) == (name, entry.id)
            }
            assert not outcomes.refused & shown.keys(), (name, outcomes.refused & shown.keys())
            assert mine <= shown.keys(), (name, mine - shown.keys())
            assert set(shown.values()) == {1}, (name, shown)
            if entry.kind == "branch" and round_ == 0:
                # Rows that only the branch has stay through the clean-up.
                outcome = alone(simulation, rebase(name), f"rebaser of {name}")
                assert outcome in ("rebased", "merge_conflict"), (name, outcome)
            elif entry.kind == "branch":
                outcome = alone(simulation, merge(name), f"merger of {name} {round_}")
                assert outcome in ("merged", "merge_conflict"), (name, outcome)
                if outcome == "merged":
                    assert mine <= alone(simulation, main, f"reader {name} {round_}").keys()
        rows = alone(simulation, main, f"reader {round_}")
        of_lake = {n for place, _, n in outcomes.acknowledged if not place}
        assert of_lake <= rows.keys(), of_lake - rows.keys()
        assert not outcomes.refused & rows.keys(), outcomes.refused & rows.keys()
        assert set(rows.values()) == {1}, rows
        # All clients clean up once more, and the rows are unchanged.
        simulation.now += 240 * HOURS
        for number, program in enumerate(
            (
                lambda client: vacuum.vacuum(
                    context_of(client),
                    "a",
                    retention_seconds=6 * HOURS,
                    dry_run=False,
                    enforce_retention=False,
                ),
                lambda client: gc.gc(context_of(client)),
            )
        ):
            alone(simulation, program, f"cleaner {number} {round_}")


@pytest.mark.parametrize("iceberg", [(), ("a", "b")], ids=["delta", "iceberg"])
@pytest.mark.parametrize("apart", [16, 1], ids=["apart", "squashed"])
def test_each_acknowledged_row_is_where_its_client_wrote_it(apart, iceberg, monkeypatch):
    monkeypatch.setattr(squash, "MOST_APART", apart)
    committed = rebased = 0
    for seed in range(HISTORIES):
        outcomes = history(seed, iceberg)
        committed += len(outcomes.acknowledged)
        rebased += outcomes.rebased
    if WHOLE:
        assert committed > 5 * HISTORIES
        assert rebased > HISTORIES

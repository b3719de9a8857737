"""Run transactions of two clients, step by step at random, against a plain model of dicts.

Each transaction records its steps. All that it has read must hold in one state of the lake since
its first use, with its own writes. (The library may take a later state where that changes no read.)
When a transaction commits, the model repeats its steps on the newest committed state: they must
read the same, and the result is the next state. So commits in their order are a serial execution. A
conflict is allowed only if another client has committed since.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla_testing.planted.every import PLANTED
from tests.support.search import how_many

RUNS, BLOCK, STEPS = how_many(3, whole=500), how_many(3, whole=25), 60
TABLES = {"a": "delta", "b": "iceberg"}
#: Id to value, of each table.
State = dict[str, dict[int, int]]
#: By name, predicates in SQL, and as Python functions; ``n`` is drawn.
WHERE: dict[str, Callable[[int, int, int], bool]] = {
    "id = :n": lambda id, v, n: id == n,
    "v >= :n": lambda id, v, n: v >= n,
    "v < :n or id > :n": lambda id, v, n: v < n or id > n,
    "id % 3 = :n % 3": lambda id, v, n: id % 3 == n % 3,
}
_lakes = count()
UPKEEP = ("gc", "recover", "optimize", "connect")
#: An action is drawn in proportion to its number of occurrences here.
ACTIONS = (
    *("read", "read", "read", "read", "update", "update", "append", "delete", "upsert"),
    *("commit", "commit", "commit", "commit"),
    *("abort", "forget", "upkeep"),
)


def copied(state: State) -> State:
    return {table: dict(rows) for table, rows in state.items()}


def found(state: State, table: str, where: tuple[str, int]) -> dict[int, int]:
    holds, n = WHERE[where[0]], where[1]
    return {id: v for id, v in state[table].items() if holds(id, v, n)}


@dataclass
class Running:
    """A transaction, the number of the state of its first use, and its steps since."""

    txn: lv.Transaction
    checks_reads: bool
    #: If true, a conflict may be with ``optimize``.
    by_rules: bool
    began: int
    first: int | None = None
    writes: bool = False
    #: Each step changes a state, and returns whether its reads would return the same there.
    steps: list[Callable[[State], bool]] = field(default_factory=list)

    def write(self, change: Callable[[State], None]) -> None:
        self.writes = True
        self.steps.append(lambda state: change(state) is None)

    def replayed(self, state: State) -> tuple[State, bool]:
        """Return the state after the transaction's steps, and whether its reads would return the
        same.
        """
        after, same = copied(state), True
        for step in self.steps:
            same &= step(after)
        return after, same


class Serial:
    """Draw the steps of two clients from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.root = f"memory://serial-{os.getpid()}-{next(_lakes)}"
        self.lakes = [lv.connect(self.root) for _ in range(2)]
        self.states: list[State] = [{table: {20: 5} for table in TABLES}]
        self.ids = count(21)
        self.running: dict[int, Running] = {}
        self.ended: Counter[str] = Counter()
        for table, format in TABLES.items():
            data = pa.table({"id": [20], "v": [5]})
            self.lakes[0].create_table(table, data, format=format)

    @property
    def commits(self) -> int:
        return len(self.states) - 1

    def close(self) -> None:
        for lake in self.lakes:
            lake.close()

    def at(self, slot: int) -> Running:
        one = self.running[slot]
        if one.first is None:
            one.first = self.commits
        return one

    # ------------------------------------------------------------ transactions

    def step(self) -> None:
        what, slot = self.random.choice(ACTIONS), self.random.randrange(3)
        table = self.random.choice(list(TABLES))
        if what == "upkeep":
            self.keep_up(self.lakes[slot % 2], self.random.choice(UPKEEP), table)
        elif slot not in self.running:
            self.running[slot] = self.begun(self.lakes[slot % 2])
        else:
            one = self.running[slot]
            if one.first is None:
                one.first = self.commits
            getattr(self, what)(slot, one, table)

    def predicate(self) -> tuple[str, int]:
        return self.random.choice(sorted(WHERE)), self.random.randrange(10)

    def begun(self, lake: lv.Lake) -> Running:
        isolation = self.random.choice(["serializable", "serializable", "snapshot"])
        validation = self.random.choice(["precise", "precise", "rules"])
        txn = lake.transaction(isolation=isolation, validation=validation)
        return Running(txn, isolation == "serializable", validation == "rules", self.commits)

    def read(self, slot: int, one: Running, table: str) -> None:
        where = self.predicate()
        rows = one.txn.read(table, where=where[0], params={"n": where[1]}).to_pylist()
        seen = {row["id"]: row["v"] for row in rows}
        assert len(seen) == len(rows)
        one.steps.append(lambda state: found(state, table, where) == seen)
        assert any(one.replayed(state)[1] for state in self.states[one.first :])

    def append(self, slot: int, one: Running, table: str) -> None:
        new = {next(self.ids): self.random.randrange(10) for _ in range(self.random.randint(1, 3))}
        one.txn.append(table, [{"id": id, "v": v} for id, v in new.items()])
        one.write(lambda state: state[table].update(new))

    def update(self, slot: int, one: Running, table: str) -> None:
        where, more = self.predicate(), self.random.randint(1, 4)
        one.txn.update(table, {"v": "v + :more"}, where[0], params={"n": where[1], "more": more})

        def again(state: State) -> None:
            state[table].update({id: v + more for id, v in found(state, table, where).items()})

        one.write(again)

    def delete(self, slot: int, one: Running, table: str) -> None:
        where = self.predicate()
        one.txn.delete(table, where[0], params={"n": where[1]})

        def again(state: State) -> None:
            for id in found(state, table, where):
                del state[table][id]

        one.write(again)

    def upsert(self, slot: int, one: Running, table: str) -> None:
        new = {self.random.randrange(10): self.random.randrange(10) for _ in range(3)}
        one.txn.upsert(table, [{"id": id, "v": v} for id, v in new.items()], "id")
        one.write(lambda state: state[table].update(new))

    def commit(self, slot: int, one: Running, table: str) -> None:
        del self.running[slot]
        after, same = one.replayed(self.states[-1])
        try:
            one.txn.commit()
        except lv.ConflictError:
            assert one.by_rules or self.commits > one.began, "nobody else has committed"
            self.ended["conflict"] += 1
            return
        self.ended["committed"] += 1
        self.ended["others between"] += self.commits > one.first
        if one.writes:
            assert same or not one.checks_reads, "what it has read was no longer true"
            self.states.append(after)
        self.everybody_reads_the_state()

    def abort(self, slot: int, one: Running, table: str) -> None:
        self.running.pop(slot).txn.abort()

    def forget(self, slot: int, one: Running, table: str) -> None:
        del self.running[slot]

    def keep_up(self, lake: lv.Lake, what: str, table: str) -> None:
        if what == "optimize":
            lake.table(table).optimize()
        elif what == "connect":
            self.lakes[self.lakes.index(lake)] = lv.connect(self.root)
        else:
            assert (lake.gc() if what == "gc" else lake.recover()).ok
        self.everybody_reads_the_state()

    def everybody_reads_the_state(self) -> None:
        snapshot = self.random.choice(self.lakes).snapshot()
        for table, rows in self.states[-1].items():
            seen = snapshot.read(table).to_pylist()
            assert sorted((r["id"], r["v"]) for r in seen) == sorted(rows.items())


def run(seed: int) -> Counter[str]:
    one = Serial(seed)
    try:
        for _ in range(STEPS):
            one.step()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        one.close()
    return one.ended


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, RUNS, BLOCK))
def test_commits_in_their_order_are_a_serial_execution(first: int) -> None:
    ended = sum((run(seed) for seed in range(first, min(first + BLOCK, RUNS))), Counter())
    # Transactions that never overlap would show nothing.
    assert ended["conflict"] > BLOCK / 10
    assert ended["others between"] > BLOCK / 3


@pytest.mark.cases(1)  # histories of each run find all of these bugs
@pytest.mark.parametrize(
    ("bug", "first"),
    [
        ("reads_not_validated", 3),
        ("redo_keeps_stale_files", 5),
        ("extended_without_a_look", 6),
    ],
)
def test_the_model_finds_each_planted_bug(bug: str, first: int) -> None:
    with PLANTED[bug].plant():
        assert any(is_wrong(seed) for seed in range(first, first + 100))


def is_wrong(seed: int) -> bool:
    try:
        run(seed)
    except AssertionError:
        return True
    return False

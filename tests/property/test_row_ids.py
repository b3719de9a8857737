"""Random histories of a table whose rows have ids, after each step of which they have them still.

A row is known by the column ``id``, which no step changes and which no two rows share, ever. As
long as it lives, its row id is the same, and no other row has it. The version of its last change
rises only in a step that writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakevilla as lv
from lakevilla.engines.duckdb.writing import rewrite
from lakevilla.engines.duckdb.writing.rewrite import Marks
from tests.support.places import make_place
from tests.support.row_ids import Bank, Lineage, rows
from tests.support.search import first_seed, how_many
from tests.support.stores import unpublished

STEPS = 30
HISTORIES = how_many(6, whole=40, soak=3500)
ICEBERG = {"format-version": "3"}
MODES = {f"write.{one}.mode": "merge-on-read" for one in ("delete", "update", "merge")}
LAYOUTS: tuple[dict[str, str], ...] = (
    {},
    {"delta.columnMapping.mode": "id"},
    {"delta.enableChangeDataFeed": "true"},
    {"delta.enableDeletionVectors": "true"},
    ICEBERG,
    ICEBERG | MODES,
)


class History:
    """A history of one table that two clients, a branch and clones take part in."""

    def __init__(self, bank: Bank, seed: int) -> None:
        self.bank, self.random = bank, Random(seed)
        self.lakes = [bank.lake, bank.place.connect()]
        self.fresh = count(100)
        self.names = count()
        self.known: Lineage = {}
        #: The rows that the present step writes.
        self.written: set[int] = set()
        #: Each row id that was ever seen, and its row.
        self.owners: dict[int, int] = {}
        #: By global version, the lineage of that state.
        self.states: dict[int, Lineage] = {}
        self.look()

    @property
    def lake(self) -> lv.Lake:
        return self.random.choice(self.lakes)

    def some(self, most: int = 4) -> list[int]:
        """Return some of the rows, which the step may write."""
        live = sorted(self.known)
        found = self.random.sample(live, min(len(live), self.random.randint(1, most)))
        self.written.update(found)
        return found

    def new(self) -> list[int]:
        return [next(self.fresh) for _ in range(self.random.randint(1, 4))]

    @staticmethod
    def among(ids: list[int]) -> str:
        return f"id in ({', '.join(map(str, [-1, *ids]))})"

    # -------------------------------------------------------------------- steps

    def append(self) -> None:
        self.lake.run(lambda txn: txn.append("bank", rows(*self.new())))

    def update(self) -> None:
        where, value = self.among(self.some()), str(next(self.names))
        self.lake.run(lambda txn: txn.update("bank", {"balance": value}, where=where))

    def delete(self) -> None:
        where = self.among(self.some(2))
        self.lake.run(lambda txn: txn.delete("bank", where=where))

    def upsert(self) -> None:
        data = rows(*self.some(), *self.new(), balance=next(self.names))
        self.lake.run(lambda txn: txn.upsert("bank", data, keys="id"))

    def merge(self) -> None:
        data = rows(*self.some(), *self.new(), balance=next(self.names))

        def merged(txn: lv.Transaction) -> None:
            plan = txn.merge("bank", data, on="target.id = source.id")
            plan = plan.when_matched_delete("target.id % 3 = 0").when_matched_update_all()
            plan.when_not_matched_insert_all().execute()

        self.lake.run(merged)

    def refresh(self) -> None:
        self.written.update(self.known)
        data = pa.concat_tables([rows(*self.known), rows(*self.new())])
        gone = self.some(2)
        data = data.filter(pc.invert(pc.is_in(data["id"], pa.array(gone))))
        self.lake.run(lambda txn: txn.overwrite("bank", data, reuse_by=["id"]))

    def overwrite(self) -> None:
        new = self.new()
        where = self.among([*self.some(2), *new])
        self.lake.run(lambda txn: txn.overwrite("bank", rows(*new), where=where))

    def optimize(self) -> None:
        self.lake.table("bank").optimize()

    def z_order(self) -> None:
        self.lake.table("bank").optimize(z_order_by=["balance", "id"])

    def several(self) -> None:
        with self.lake.transaction() as txn:
            new = self.new()
            txn.append("bank", rows(*new))
            txn.update("bank", {"balance": "7"}, where=self.among([*self.some(), new[0]]))
            txn.update("bank", {"balance": "8"}, where=self.among([*self.some(), new[-1]]))

    def pending(self) -> None:
        lake = self.lake
        new = self.new()
        with unpublished(lake):
            lake.run(lambda txn: txn.append("bank", rows(*new)))
        if self.random.random() < 0.5 and self.bank.is_plain:
            self.bank.append_by_others(*self.new())
        where = self.among([*self.some(), new[0]])
        lake.run(lambda txn: txn.update("bank", {"balance": "9"}, where=where))

    def behind(self) -> None:
        """Let a transaction commit behind another that has changed rows of the same files."""
        mine, others = self.some(), self.some()
        with self.lakes[0].transaction(isolation="snapshot") as txn:
            txn.update("bank", {"balance": "5"}, where=self.among(mine))
            self.lakes[1].run(
                lambda txn: txn.update("bank", {"balance": "6"}, where=self.among(others))
            )

    def branch(self) -> None:
        name = f"b{next(self.names)}"
        self.lakes[0].branch(name)
        on = self.lakes[0].on(name)
        new = self.new()
        on.run(lambda txn: txn.append("bank", rows(*new)))
        mine = self.some()
        on.run(lambda txn: txn.update("bank", {"balance": "3"}, where=self.among([*mine, new[0]])))
        others = [k for k in self.some() if k not in mine]
        if self.random.random() < 0.5:  # then rows are merged, not files
            self.lakes[1].run(
                lambda txn: txn.update("bank", {"balance": "4"}, where=self.among(others))
            )
        self.lakes[0].merge(name, keys={"bank": "id"}, delete=True)

    def rollback(self) -> None:
        version = self.random.choice(list(self.states))
        self.lakes[0].rollback(version, tables=["bank"])
        then = self.states[version]
        found = self.lineage()
        if self.bank.is_iceberg:  # a file that is added again has the sequence number of now
            self.written.update(then)
            found = {k: (row, then[k][1]) for k, (row, _) in found.items() if k in then}
        assert found == then, f"rollback to {version}"
        self.known = then

    def clone(self) -> None:
        name = f"c{next(self.names)}"
        self.lakes[0].clone("bank", name)
        new = self.new()
        self.lakes[0].run(lambda txn: txn.append(name, rows(*new)))
        self.lakes[0].run(lambda txn: txn.update(name, {"balance": "2"}, where="id % 3 = 1"))
        found = self.bank.lineage_of(name)
        assert found.keys() == {*self.known, *new}
        assert {k: found[k][0] for k in self.known} == {
            k: row for k, (row, _) in self.known.items()
        }

    def export(self) -> None:
        self.lake.export("bank", "exported")
        found = self.bank.lineage_of("exported")
        assert {k: row for k, (row, _) in found.items()} == {
            k: row for k, (row, _) in self.known.items()
        }

    # ------------------------------------------------------------------- checks

    def lineage(self) -> Lineage:
        found = self.bank.lineage
        assert set(found) == set(self.lake.read("bank")["id"].to_pylist())
        return found

    def look(self) -> None:
        found = self.lineage()
        for k, (row, since) in found.items():
            assert self.owners.setdefault(row, k) == k, "an id is used again"
            if k in self.known:
                assert row == self.known[k][0], f"row {k} has another id"
                assert since >= self.known[k][1], f"row {k} has an older version"
                assert since == self.known[k][1] or k in self.written, f"row {k} was not written"
        self.known = found
        self.states[self.lakes[0].snapshot().version] = found

    def step(self) -> None:
        self.written = set()
        self.random.choice(_STEPS)(self)
        self.look()


#: A step is drawn in proportion to its number of occurrences.
_STEPS: tuple[Callable[[History], None], ...] = (
    *[History.append] * 3,
    *[History.update] * 4,
    *[History.delete, History.upsert, History.merge, History.optimize, History.z_order] * 2,
    *[History.several, History.pending, History.behind, History.branch] * 2,
    *[History.refresh, History.overwrite, History.rollback, History.clone, History.export],
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(HISTORIES))
def test_rows_keep_their_ids_in_any_history(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(rewrite, "MARKS", Marks(0, 1.0, 2000, 0.5))
    seed = first_seed() * 1000 + number
    bank = Bank(make_place("local", request), LAYOUTS[number % len(LAYOUTS)])
    history = History(bank, seed)
    try:
        for _ in range(STEPS):
            history.step()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        for lake in history.lakes:
            lake.close()

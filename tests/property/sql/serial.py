"""Run SQL transactions of several clients at once: they have a serial order, that of HEAD.

DuckDB runs the committed ones again in this order, each on the tables that those before it have
left: it finds the same rows at each query, and leaves the same tables.
``python -m tests.property.sql.serial SEED`` repeats a seed, and ``--threads`` one of real threads.
"""

from __future__ import annotations

import argparse
import logging
import re
import shutil
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv
from tests.property.programs.running import marks
from tests.property.sql.queries import QueryWriter

#: Tables by name.
State = Mapping[str, pa.Table]
#: A multiset of rows.
Bag = Counter[str]
_OPTIONS = (
    "",
    " PARTITIONED BY (k)",
    " TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    " TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    " USING iceberg",
    " USING iceberg PARTITIONED BY (bucket(2, k))",
    " USING iceberg TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = "
    "'merge-on-read', 'write.update.mode' = 'merge-on-read')",
)


class NotSerial(AssertionError):
    """A difference between the transactions and their serial execution."""


@dataclass(frozen=True)
class Item:
    """A statement of a transaction, and the rows that it has found, if it is a query."""

    text: str
    rows: Bag | None = None


def replayed(state: State, items: Iterable[Item]) -> tuple[State, list[str]]:
    """Return the tables after the statements, and the queries that find other rows."""
    other = []
    marked: list[tuple[str, State]] = []
    with duckdb.connect() as database:
        _load(database, state)
        for item in items:
            word, _, name = item.text.partition(" ")
            if word == "SAVEPOINT":
                marked.append((name, _tables(database)))
            elif word == "ROLLBACK":  # ROLLBACK TO name
                at = max(at for at, mark in enumerate(marked) if mark[0] == name.split()[-1])
                del marked[at + 1 :]
                _load(database, marked[at][1])
            elif word == "RELEASE":
                del marked[max(at for at, mark in enumerate(marked) if mark[0] == name) :]
            else:
                if item.rows is None:
                    database.execute(item.text).fetchall()
                    continue
                rows = bag_of(database.sql(item.text).to_arrow_table())
                if rows != item.rows:
                    other.append(
                        f"{item.text}\n  found {_few(item.rows - rows)}, and not "
                        f"{_few(rows - item.rows)}"
                    )
        return _tables(database), other


def _load(database: duckdb.DuckDBPyConnection, state: State) -> None:
    for (name,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        database.execute(f"DROP TABLE {name}")
    for name, rows in state.items():
        database.register("given", rows)
        database.execute(f"CREATE TABLE {name} AS FROM given")
        database.unregister("given")


def _tables(database: duckdb.DuckDBPyConnection) -> State:
    names = database.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    return {name: database.sql(f"FROM {name}").to_arrow_table() for (name,) in names}


def _bag(rows: Iterable[Iterable[Any]]) -> Bag:
    """Return rows as a multiset; DuckDB keeps 0.0 where an UPDATE sets the equal -0.0."""
    return Counter(
        repr([value + 0.0 if isinstance(value, float) else value for value in row]) for row in rows
    )


def bag_of(found: pa.Table) -> Bag:
    return _bag(row.values() for row in found.to_pylist())


def _few(rows: Bag) -> str:
    return ", ".join(list(rows.elements())[:3]) or "nothing"


@dataclass
class Open:
    """A transaction of a session."""

    items: list[Item] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    tables: dict[str, list[str]] = field(default_factory=dict)


class Serial:
    """Sessions of several clients whose statements alternate, drawn from a seed."""

    def __init__(self, seed: int, root: str, tally: Counter[str]) -> None:
        self.random, self.root, self.tally = Random(f"serial {seed}"), root, tally
        self.writer = QueryWriter(self.random)
        settings = lv.Settings(durable_files=False)
        self.lakes = [lv.connect(root, settings=settings) for _ in range(2)]
        self.sessions = [self.lakes[at % 2].session() for at in range(3)]
        self.state: State = {}
        self.open: dict[int, Open] = {}
        self.done: list[str] = []
        self.foreign: set[str] = set()
        for _ in range(self.random.randint(1, 3)):
            self.create()

    def close(self) -> None:
        for one in (*self.sessions, *self.lakes):
            one.close()

    def create(self) -> None:
        options = self.random.choice(_OPTIONS)
        text, of_lake = self.writer.create(options)
        insert = self.writer.insert()
        self.note(0, f"{of_lake}; {insert}")
        self.sessions[0].sql(f"{of_lake}; {insert}")
        if not options and not self.root.startswith("memory"):
            self.foreign.add(f"t{self.writer.made - 1}")
        self.state, _ = replayed(self.state, [Item(text), Item(insert)])

    def note(self, slot: int, text: str) -> None:
        self.done.append(f"{slot}: {text}")

    # -- steps -----------------------------------------------------------------------------

    def step(self) -> None:
        slot = self.random.randrange(3)
        draw = self.random.random()
        if draw < 0.04:
            self.upkeep()
        elif draw < 0.08 and self.foreign:
            self.by_others()
        elif slot not in self.open:
            if self.random.random() < 0.3:
                self.alone(slot)
            else:
                self.note(slot, "BEGIN")
                self.sessions[slot].sql("BEGIN")
                self.open[slot] = Open()
        elif draw < 0.3:
            self.end(slot)
        elif draw < 0.4:
            self.savepoint(slot)
        else:
            self.inside(slot)

    def inside(self, slot: int) -> None:
        one = self.open[slot]
        item = self.run(slot)
        if item is not None:
            one.items.append(item)

    def run(self, slot: int) -> Item | None:
        """Run a statement, and return it with what it has found; None if it is refused."""
        asks = self.random.random() < 0.4
        text = self.writer.query() if asks else self.writer.statement()
        self.note(slot, text)
        try:
            found = self.sessions[slot].sql(text)
        except lv.InvalidOperation as error:
            self.note(slot, f"-- refused: {' '.join(str(error).split())[:200]}")
            self.tally["refused"] += 1
            return None
        self.tally["queries" if asks else "statements"] += 1
        return Item(text, bag_of(found) if asks else None)

    def alone(self, slot: int) -> None:
        """Run a statement outside of a transaction: it sees the newest state."""
        item = self.run(slot)
        if item is not None:
            self.committed(slot, [item])

    def savepoint(self, slot: int) -> None:
        one = self.open[slot]
        if one.marks and self.random.random() < 0.6:
            at = self.random.randrange(len(one.marks))
            name = one.marks[at]
            text = self.random.choice((f"ROLLBACK TO {name}", f"RELEASE {name}"))
            del one.marks[at + text.startswith("ROLLBACK") :]
        else:
            name = f"s{len(one.items)}"
            text = f"SAVEPOINT {name}"
            one.marks.append(name)
        self.note(slot, text)
        self.sessions[slot].sql(text)
        one.items.append(Item(text))

    def end(self, slot: int) -> None:
        one = self.open.pop(slot)
        if self.random.random() < 0.2:
            self.note(slot, "ROLLBACK")
            self.sessions[slot].sql("ROLLBACK")
            return
        self.note(slot, "COMMIT")
        try:
            self.sessions[slot].sql("COMMIT")
        except lv.ConflictError:
            self.note(slot, "-- conflict")
            self.tally["conflicts"] += 1
            with suppress(lv.InvalidOperation):
                self.sessions[slot].sql("ROLLBACK")
            return
        self.committed(slot, one.items)

    def committed(self, slot: int, items: list[Item]) -> None:
        """Check the transaction against its serial execution now, and all tables after it."""
        writes = any(item.rows is None and item.text.split()[0] not in _MARKS for item in items)
        after, other = replayed(self.state, items)
        if other and writes:
            raise NotSerial(f"session {slot}: {other[0]}")
        self.state = after
        self.tally["transactions"] += 1
        self.everybody_sees_the_state()

    def by_others(self) -> None:
        """Let deltalake change a table."""
        name = self.random.choice(sorted(self.foreign))
        path, rows = f"{self.root}/{name}", self.state[name]
        if self.random.random() < 0.5 and rows.num_rows:
            some = rows.slice(0, 2)
            write_deltalake(path, some.cast(pa.schema(DeltaTable(path).schema())), mode="append")
            self.state = {**self.state, name: pa.concat_tables([rows, some])}
            self.note(9, f"-- deltalake appends the first two rows of {name}")
        else:
            DeltaTable(path).delete("k = 1")
            self.state, _ = replayed(self.state, [Item(f"DELETE FROM {name} WHERE k = 1")])
            self.note(9, f"-- deltalake deletes k = 1 from {name}")
        self.tally["by deltalake"] += 1
        self.everybody_sees_the_state()

    def upkeep(self) -> None:
        lake = self.random.choice(self.lakes)
        verb = self.random.choice(("gc", "recover", "optimize", "maintain"))
        self.note(9, f"-- {verb}")
        if verb == "optimize":
            lake.table(self.random.choice(sorted(self.state))).optimize()
        else:
            assert getattr(lake, verb)().ok
        self.everybody_sees_the_state()

    def everybody_sees_the_state(self) -> None:
        snapshot = self.random.choice(self.lakes).snapshot()
        for name, rows in self.state.items():
            ours, wanted = bag_of(snapshot.read(name)), bag_of(rows)
            self.tally["rows compared"] += rows.num_rows
            if ours != wanted:
                raise NotSerial(f"{name} has {_few(ours - wanted)}, not {_few(wanted - ours)}")


_MARKS = ("SAVEPOINT", "RELEASE", "ROLLBACK")


def run(seed: int, tally: Counter[str], steps: int = 40) -> None:
    """Let the statements of sessions alternate."""
    local = seed % 3 == 0
    directory = tempfile.mkdtemp(prefix="serial_", dir=_shm()) if local else ""
    root = directory or f"memory://serial/{uuid.uuid4()}"
    with marks(seed % 2 == 0):
        one = Serial(seed, root, tally)
        try:
            for _ in range(steps):
                one.step()
        except Exception as error:
            error.add_note("\n".join(one.done))
            raise
        finally:
            one.close()
            shutil.rmtree(directory, ignore_errors=True)
    tally["scripts"] += 1


def _shm() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


# -- threads ------------------------------------------------------------------------------


@dataclass
class Attempted:
    """A transaction of a thread: the statements of its last attempt."""

    id: str = ""
    items: list[Item] = field(default_factory=list)
    committed: bool = False


class Threads:
    """Threads whose transactions form groups, chains and combined commits."""

    def __init__(self, seed: int, tally: Counter[str]) -> None:
        self.seed, self.tally = seed, tally
        self.random = Random(f"threads {seed}")
        self.lake = lv.connect(f"memory://threads/{uuid.uuid4()}")
        self.writer = QueryWriter(self.random)
        self.state: State = {}
        self.texts: list[list[tuple[dict[str, Any], list[str]]]] = []
        self.attempted: list[Attempted] = []
        self.errors: list[BaseException] = []
        with self.lake.session() as session:
            for _ in range(self.random.randint(1, 2)):
                text, of_lake = self.writer.create(self.random.choice(_OPTIONS))
                insert = self.writer.insert()
                session.sql(f"{of_lake}; {insert}")
                self.state, _ = replayed(self.state, [Item(text), Item(insert)])
        for _ in range(self.random.choice((3, 4, 6))):
            self.texts.append([self._transaction() for _ in range(3)])

    def _transaction(self) -> tuple[dict[str, Any], list[str]]:
        draw = self.random
        options: dict[str, Any] = {}
        if draw.random() < 0.5:
            options["defer"] = True
        if draw.random() < 0.2:
            options["features"] = lv.Feature.R | lv.Feature.I | lv.Feature.CT
        if draw.random() < 0.2:
            options["wait"] = "decided"
        asks = 0.0 if options.get("defer") else 0.3
        made = [
            self.writer.query() if draw.random() < asks else self.writer.statement()
            for _ in range(draw.randint(1, 3))
        ]
        return options, made

    def run(self) -> None:
        threads = [threading.Thread(target=self._work, args=(texts,)) for texts in self.texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        self.check()

    def _work(self, texts: list[tuple[dict[str, Any], list[str]]]) -> None:
        try:
            for options, statements in texts:
                one = Attempted()
                self.attempted.append(one)
                try:
                    self.lake.run(self._attempt, one, statements, attempts=100, **options)
                except lv.InvalidOperation:
                    self.tally["refused"] += 1
                    continue
                one.committed = True
        except BaseException as error:
            self.errors.append(error)

    def _attempt(self, txn: lv.Transaction, one: Attempted, statements: list[str]) -> None:
        one.id, one.items = txn.id, []
        for text in statements:
            asks = not re.match("INSERT|UPDATE|DELETE|MERGE", text) and not _changes(text)
            found = txn.sql(text)
            one.items.append(Item(text, bag_of(found) if asks else None))  # type: ignore[arg-type]

    def check(self) -> None:
        """Check all transactions in HEAD's order."""
        by_id = {one.id: one for one in self.attempted if one.committed}
        order: list[str] = []
        for entry in reversed(self.lake.history()):
            found = entry.members or ((entry.txn_id,) if entry.txn_id else ())
            order += [txn for txn in found if txn in by_id]
            self.tally["combined"] += len(entry.members)
        states = [self.state]
        for txn in order:
            state, other = replayed(states[-1], by_id[txn].items)
            if other:
                raise NotSerial(f"transaction {txn}: {other[0]}")
            states.append(state)
            self.tally["transactions"] += 1
        with self.lake.snapshot() as snapshot:
            for name, rows in states[-1].items():
                ours, wanted = bag_of(snapshot.read(name)), bag_of(rows)
                self.tally["rows compared"] += rows.num_rows
                if ours != wanted:
                    raise NotSerial(f"{name} has {_few(ours - wanted)}, not {_few(wanted - ours)}")
        for txn, one in by_id.items():  # it has changed nothing
            if txn not in order and all(replayed(state, one.items)[1] for state in states):
                raise NotSerial(f"transaction {txn} has found what no state of the lake has")


def _changes(text: str) -> bool:
    """Return whether a WITH clause stands before a change."""
    return bool(re.match("WITH c AS .*\\) (INSERT|UPDATE|DELETE)", text, re.DOTALL))


def run_threads(seed: int, tally: Counter[str]) -> None:
    """Let threads of one process commit at once."""
    with marks(seed % 2 == 0):
        one = Threads(seed, tally)
        try:
            one.run()
        except Exception as error:
            error.add_note(
                "\n".join(f"{opts}: {'; '.join(t)}" for ts in one.texts for opts, t in ts)
            )
            raise
        finally:
            one.lake.close()
    tally["crowds"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--threads", action="store_true")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    tally: Counter[str] = Counter()
    failed = 0
    for first in chosen.seeds:
        for seed in range(first, first + chosen.count):
            try:
                (run_threads if chosen.threads else run)(seed, tally)
            except Exception as error:
                failed += 1
                print(f"seed {seed}: {type(error).__name__}: {error}")
                print(*getattr(error, "__notes__", ()), sep="\n", flush=True)
    print(dict(tally), "failed:", failed)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

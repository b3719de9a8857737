"""Tables whose columns are renamed, added and dropped while rows are read and written.

Besides the columns of every simulated table, these have two marked columns. One has the id of the
row and the other never has it, and their names move from one to the other: a client that takes a
name for its earlier, or its later, meaning finds other rows. So clients read and write by the name
of the first column instead of by ``id``, and the checks of lists and rows show whether they were
right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.formats.base import FormatName
from lakevilla.formats.layout import Ids, Layout, path_of
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Alter, Delete, Update
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.bind import touch
from lakevilla_testing.checks.invariants import Violated
from lakevilla_testing.histories.attempts import Hand, Try, World
from lakevilla_testing.tables.reader import read_table, run_now
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.rows import Row

#: The fields of the marked columns, by the format of their table.
_MARKS: dict[FormatName, tuple[Ids, Ids]] = {
    "delta": (("col-m",), ("col-n",)),
    "iceberg": (("4",), ("5",)),
}
_NAMES = ("m", "n", "o")
_COLUMNS = {"id": "long", "balance": "long", "items": "string", "m": "long", "n": "long"}
#: Prefix of the columns that are added and dropped.
_FILLED = "c"


def set_up(
    client: Client,
    clients: Any,
    kind: FormatName,
    table: str,
    rows: Sequence[Row],
    properties: Mapping[str, str],
) -> Program[None]:
    """Create a table that has the marked columns, each row in a file of its own."""
    marked = [{**row, "m": row["id"], "n": -1 - row["id"]} for row in rows]
    mapped = {"mapped": True} if kind == "delta" else {}
    yield from clients.create(client, table, _COLUMNS, marked[:1], properties=properties, **mapped)
    for row in marked[1:]:
        yield from clients.append(client, table, [row])


def reshape(hand: Hand, client: Client) -> Program[None]:
    """Change a table's columns, then work with rows by the names that it has from then on."""
    table = client.random.choice([*hand.attempt.tables] or ["a", "b", "c"])
    # Before the table's names are read: a place in a queue may show a newer state.
    yield from touch(hand.core, [table], probing=True, access="write")
    if hand.core.options.features == Feature.NONE:
        return (yield from _change(hand, client, table))
    if client.random.random() < 0.7:
        yield from _change(hand, client, table)
    for _ in range(client.random.randint(1, 3)):
        yield from _work(hand, client, table)
    if client.random.random() < 0.3:
        yield from _change(hand, client, table)
        yield from _work(hand, client, table)


def _change(hand: Hand, client: Client, table: str) -> Program[None]:
    layout = hand.core.work.tables[table].snapshot.layout
    other = [name for name in layout.schema.names if name.startswith(_FILLED)]
    kind = client.random.choice(("swap", "swap", "add", "drop", "constraint"))
    format_ = hand.world.plan.format_of(table)
    if kind == "drop" and other:
        name = client.random.choice(other)
        hand.world.dropped.add((table, name))
        yield from hand.do(Alter(table, {"drop_columns": [name]}))
    elif kind == "constraint" and format_ == "delta":
        mark = _mark(hand, table)
        rule = {f"k{hand.world.value()}": f"id >= 0 AND ({mark} IS NULL OR {mark} >= 0)"}
        if not layout.constraints:
            yield from hand.do(Alter(table, {"add_constraints": rule}))
    elif kind == "add":
        yield from _fill(hand, client, table)
    elif not layout.constraints:
        # One column's name moves to the other, which may be the one that holds the id.
        one, two = (path_of(layout, ids) for ids in client.random.sample(_MARKS[format_], 2))
        assert one is not None
        assert two is not None
        free = next(name for name in _NAMES if name not in (one[0], two[0]))
        yield from hand.do(Alter(table, {"rename_columns": {one[0]: free}}))
        if hand.core.options.features != Feature.NONE:
            yield from hand.do(Alter(table, {"rename_columns": {two[0]: one[0]}}))


def _fill(hand: Hand, client: Client, table: str) -> Program[None]:
    """Add a column, and a value in one row of it."""
    value = hand.world.value()
    name = f"{_FILLED}{value}"
    columns = pa.schema([(name, pa.int64())]).serialize().to_pybytes()
    yield from hand.do(Alter(table, {}, columns))
    if hand.core.options.features == Feature.NONE:
        return
    key = client.random.randrange(2)
    where = f"{name} IS NULL AND {_mark(hand, table)} = {key}"
    yield from hand.do(Update(table, {name: parse_expression(str(value))}, parse_predicate(where)))
    hand.attempt.filled.append((table, name, key, value))
    if client.random.random() < 0.5:
        rows = yield from hand.look(table, f"{name} = {value}")
        assert [row["id"] for row in rows] == [key], rows


def _work(hand: Hand, client: Client, table: str) -> Program[None]:
    """Do other kinds of work by the marked column that has the id, instead of by ``id``."""
    mark = _mark(hand, table)
    chance = client.random.random()
    if chance < 0.4:
        yield from hand.push(table, client.random.randrange(2), by=mark)
    elif chance < 0.8:
        yield from hand.read(table, client.random.randrange(2), by=mark)
    elif chance < 0.9:
        yield from hand.add(table, mark=mark)
    else:
        added = [a for attempt in hand.world.attempts for a in attempt.added if a[0] == table]
        if not added:
            return
        number = client.random.choice(added)[1]
        done = yield from hand.do(Delete(table, parse_predicate(f"{mark} = {number}")))
        if (yield from hand.count(done)):
            hand.attempt.taken.append((table, number))


def _mark(hand: Hand, table: str) -> str:
    """Return the name of the column that holds the id, in the transaction's own state."""
    layout: Layout = hand.core.work.tables[table].snapshot.layout
    path = path_of(layout, _MARKS[hand.world.plan.format_of(table)][0])
    assert path is not None, f"{table} lacks its marked column: {layout.schema.names}"
    return path[0]


def foreign_act(
    world: World, client: Client, clients: Any, kind: FormatName, table: str
) -> Program[None]:
    """Change columns or rules of a table as a client without LakeVilla.

    It adds a column, gives the marked ones other names, or changes the table's rules for rows: all
    existing rows satisfy them.
    """
    if client.random.random() < 0.4:
        rules = (clients.toggle_not_null, getattr(clients, "toggle_constraint", None))
        toggle = client.random.choice([rule for rule in rules if rule is not None])
        yield from toggle(client, table, "id")
        return
    if client.random.random() < 0.4:
        yield from clients.add_column(client, table, f"d{world.value()}")
        return
    ids = [".".join(one) for one in _MARKS[kind]]
    names = client.random.sample(_NAMES, 2)
    yield from clients.name_fields(client, table, dict(zip(ids, names, strict=True)))


# ------------------------------------------------------------------ afterwards


def marks_are_kept(world: World, rows: Mapping[str, Sequence[Row]]) -> None:
    """Check that the marked columns of the first rows keep their values, under any names."""
    for table in ("a", "b", "c"):
        found = [row for row in rows[table] if row["id"] < 5]
        names = [name for name in _NAMES if name in found[0]]
        marks = {name: [row[name] for row in found] for name in names}
        ids = [row["id"] for row in found]
        expected = sorted([ids, [-1 - number for number in ids]])
        if sorted(marks.values()) != expected:
            raise Violated(f"{table}: the marked columns of rows {ids} hold {marks}")


def columns_are_filled(
    world: World, rows: Mapping[str, Sequence[Row]], winners: Mapping[str, Try]
) -> None:
    """Check that a column that was added and filled has its one value in its one row.

    It may have been dropped since, or not have been created. ``winners`` are the attempts that are
    committed and not cancelled: a column that a cancelled commit had added is gone with it, and its
    owner got an error.
    """
    committed = set(winners.values())
    for attempt in world.attempts:
        for table, name, key, value in attempt.filled:
            if name not in rows[table][0]:
                if attempt in committed and (table, name) not in world.dropped:
                    raise Violated(f"{table}: column {name} of {attempt.id} is lost")
                continue
            found = {row["id"]: row[name] for row in rows[table] if row[name] is not None}
            if found != {key: value}:
                raise Violated(f"{table}: column {name} of {attempt.id} holds {found}")


def renames_are_seen(
    world: World, rows: Mapping[str, Sequence[Row]], winners: Mapping[str, Try]
) -> None:
    """Check that each committed rename uses a name that the renames before it had left.

    The check goes by the order of the table's log, where no foreign client renames columns.
    """
    for table in ("a", "b", "c"):
        logged = run_now(world.simulation.store, read_table(table))
        assert logged is not None
        renames = {txn: _renames(attempt, table) for txn, attempt in winners.items()}
        order = list(logged.transactions)
        if any(made and txn not in order for txn, made in renames.items()):
            continue  # its part of the log was cleaned up, or written under another id
        names = {"m", "n"}
        for txn in order:
            for renamed in renames.get(txn, ()):
                if not names >= set(renamed):
                    raise Violated(
                        f"{table}: {txn} renamed {renamed}, and there was {sorted(names)}"
                    )
                names = names - set(renamed) | set(renamed.values())
        found = {name for name in _NAMES if name in rows[table][0]}
        if found != names:
            raise Violated(f"{table}: its marked columns are {sorted(found)}, not {sorted(names)}")


def _renames(attempt: Try, table: str) -> list[Mapping[str, str]]:
    """Return the new names of columns by the attempt's operations on the table, by the
    old names.
    """
    operations = [
        done.operation for done in attempt.core.work.done if done.operation.table == table
    ]
    requests = [one.request for one in operations if isinstance(one, Alter)]
    return [one["rename_columns"] for one in requests if "rename_columns" in one]

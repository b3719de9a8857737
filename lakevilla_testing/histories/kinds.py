"""The work of transactions of every kind, on the real protocol.

Each table holds rows ``id, balance, items``: two lists (ids 0 and 1, checked by ``elle``), two bank
accounts (2 and 3), two switches of which one must stay on (4 in the first two tables), and rows
that are added and deleted (from 100 on). Every value is written once, so that the contents of a
table at the end show which transactions wrote them.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from lakevilla.engines.base import MergeClause
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Alter, Delete, InlineSource, Merge, Replace
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs import optimize as optimizing
from lakevilla.transaction.verbs.read_write import create, drop, layout_to_replace
from lakevilla.transaction.verbs.read_write import refresh as refreshing
from lakevilla.transaction.verbs.read_write import replace as replacing
from lakevilla_testing.histories.attempts import CONTENDED, FREQUENT, SCHEMA, Hand, key_of
from lakevilla_testing.histories.plan import TABLES
from lakevilla_testing.histories.reshaping import reshape
from lakevilla_testing.world.client import Client

Body = Callable[[Hand, Client], Program[None]]


def _tables(hand: Hand, client: Client, count: int) -> list[str]:
    """Return the tables of a transaction: only one with neither Feature.I nor Feature.CT."""
    chosen = client.random.sample(TABLES, count)
    if _spans(hand):
        return chosen
    if hand.attempt.tables:
        return [next(iter(hand.attempt.tables))] * count
    return [chosen[0]] * count


def _spans(hand: Hand) -> bool:
    """Return whether the transaction may use several tables."""
    return bool(hand.core.options.features & (Feature.I | Feature.CT))


def _single(hand: Hand) -> bool:
    return hand.core.options.features == Feature.NONE


def transfer(hand: Hand, client: Client) -> Program[None]:
    """Move money between two accounts, in two tables where it can."""
    amount = client.random.randint(1, 9)
    source, target = _tables(hand, client, 2)
    if _single(hand):
        change = f"balance + CASE WHEN id = 2 THEN {amount} ELSE -{amount} END"
        yield from hand.update(source, "balance", change, "id = 2 OR id = 3")
        return
    first, second = client.random.choice(((2, 3), (3, 2), (2, 3)))
    done = yield from hand.update(source, "balance", f"balance - {amount}", f"id = {first}")
    if client.random.random() < 0.3:
        yield from hand.count(done)
    yield from hand.update(target, "balance", f"balance + {amount}", f"id = {second}")


def share(hand: Hand, client: Client) -> Program[None]:
    """Move money within a table by two statements, of which both change rows of its first file."""
    amount = client.random.randint(1, 9)
    (table,) = _tables(hand, client, 1)
    if _single(hand):
        yield from transfer(hand, client)
        return
    yield from hand.update(table, "balance", f"balance - {amount}", "id = 2")
    change = f"balance + CASE WHEN id = 3 THEN {amount} ELSE 0 END"
    yield from hand.update(table, "balance", change, "id = 0 OR id = 3")


def lists(hand: Hand, client: Client) -> Program[None]:
    """Read and append to lists, for the checker of isolation."""
    tables = _tables(hand, client, 2)
    for _ in range(1 if _single(hand) else client.random.randint(1, 4)):
        table = client.random.choice(tables)
        if client.random.random() < 0.5:
            yield from hand.read(table, client.random.randrange(2))
        else:
            yield from hand.push(table, client.random.randrange(2))


def contended(hand: Hand, client: Client) -> Program[None]:
    """Do the same as ``lists`` on so few lists that two transactions nearly always conflict."""
    for _ in range(client.random.randint(1, 3)):
        table, key = client.random.choice(CONTENDED), client.random.choice((0, 0, 1))
        if client.random.random() < 0.5:
            yield from hand.read(table, key)
        else:
            yield from hand.push(table, key)


def hot(hand: Hand, client: Client) -> Program[None]:
    """Change one row that all transactions of this kind change, and look at nothing."""
    for _ in range(1 if _single(hand) else client.random.randint(1, 3)):
        yield from hand.push(TABLES[0], 0)


def raises(hand: Hand, client: Client) -> Program[None]:
    """Read lists and change rows, and drop the changes if it is performed in a chain.

    So does a function that raises an error: its caller learns what it has read.
    """
    for table in _tables(hand, client, 2):
        yield from hand.read(table, client.random.randrange(2))
    if hand.core.turn is not None:
        yield from hand.update(TABLES[0], "items", "items || ',0'", "id = 0")


def add(hand: Hand, client: Client) -> Program[None]:
    """Append rows blindly."""
    for table in _tables(hand, client, 1 if _single(hand) else client.random.randint(1, 3)):
        yield from hand.add(table)


def revise(hand: Hand, client: Client) -> Program[None]:
    """Add a row and change it at once: no log names the file in which it was first."""
    table = _tables(hand, client, 1)[0]
    yield from hand.add(table)
    if not _single(hand):
        number = hand.attempt.added[-1][1]
        yield from hand.update(table, "balance", "balance + 0", f"id = {number}")
        yield from hand.push(table, 0)


def take(hand: Hand, client: Client) -> Program[None]:
    """Delete a row that some transaction has added."""
    table = _tables(hand, client, 1)[0]
    added = [a for attempt in hand.world.attempts for a in attempt.added if a[0] == table]
    if not added:
        yield from hand.add(table)
        return
    number = client.random.choice(added)[1]
    done = yield from hand.do(Delete(table, parse_predicate(f"id = {number}")))
    if (yield from hand.count(done)):
        hand.attempt.taken.append((table, number))


def skew(hand: Hand, client: Client) -> Program[None]:
    """Turn a switch off if the other one is on: write skew would leave none on."""
    if not _spans(hand):
        return (yield from lists(hand, client))
    mine, other = client.random.sample(TABLES[:2], 2)
    rows = yield from hand.look(other, "id = 4")
    if rows and rows[0]["balance"] == 1:
        yield from hand.update(mine, "balance", "0", "id = 4")
    elif client.random.random() < 0.5:
        yield from hand.update(mine, "balance", "1", "id = 4")


def snapshot(hand: Hand, client: Client) -> Program[None]:
    """Read several tables: with Feature.I they must be of one state."""
    if not _spans(hand):
        for key in client.random.sample((0, 1), 2):
            yield from hand.read(_tables(hand, client, 1)[0] if key else TABLES[0], 0)
            return
    total = 0
    for table in client.random.sample(TABLES, len(TABLES)):
        yield from hand.read(table, client.random.randrange(2))
        rows = yield from hand.look(table, "id = 2 OR id = 3")
        total += sum(row["balance"] for row in rows)
    if Feature.I in hand.core.options.features:
        hand.attempt.sums.append(total)


def lifecycle(hand: Hand, client: Client) -> Program[None]:
    """Create a table with rows, use it, drop it; other clients do the same under the same names."""
    name = client.random.choice(("n1", "n2", "n3"))
    if client.random.random() < 0.6:
        kind = hand.world.plan.format_of(name)
        yield from create(hand.core, name, SCHEMA, (), FREQUENT[kind], format=kind)
        hand.attempt.made.append(name)
        hand.attempt.tables.add(name)
        if not _single(hand):
            yield from hand.add(name)
    elif client.random.random() < 0.7:
        yield from hand.add(name)
    else:
        hand.attempt.tables.add(name)
        yield from drop(hand.core, name)
    if _spans(hand):
        yield from hand.push(client.random.choice(TABLES), 0)


def alter(hand: Hand, client: Client) -> Program[None]:
    """Change metadata among changes of rows."""
    table = _tables(hand, client, 1)[0]
    note = {"note": str(hand.world.value())}
    yield from hand.do(Alter(table, {"set_properties": note}))
    if not _single(hand):
        yield from hand.push(table, 1)


def merge(hand: Hand, client: Client) -> Program[None]:
    """Upsert two rows, one of which may exist."""
    table = _tables(hand, client, 1)[0]
    value, number = hand.world.value(), 100 + hand.world.value()
    rows = pa.table({"id": [0, number], "balance": [0, 0], "items": ["", ""]}, schema=SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    insert = {name: parse_expression(f"source.{name}") for name in SCHEMA.names}
    clauses = (
        MergeClause(
            "matched_update", None, {"items": parse_expression(f"target.items || ',{value}'")}
        ),
        MergeClause("not_matched_insert", None, insert),
    )
    source = InlineSource(sink.getvalue().to_pybytes())
    on = parse_predicate("target.id = source.id")
    yield from hand.do(Merge(table, source, on, "source", "target", clauses))
    hand.attempt.record.append(key_of(table, 0), value)
    hand.attempt.added.append((table, number))


def optimize(hand: Hand, client: Client) -> Program[None]:
    """Move the rows of a table into fewer files: no other client may see a difference."""
    table = _tables(hand, client, 1)[0]
    hand.attempt.tables.add(table)
    order = ("id",) if client.random.random() < 0.3 else ()
    yield from optimizing.optimize(hand.core, table, z_order_by=order)


def refresh(hand: Hand, client: Client) -> Program[None]:
    """Read a whole table, put a value into a list, and overwrite all of it: most files stay."""

    def write(table: str, rows: pa.RecordBatchReader) -> Program[object]:
        return (yield from refreshing(hand.core, table, rows, ("id",)))

    yield from _written_whole(hand, client, write)


def redefine(hand: Hand, client: Client) -> Program[None]:
    """Do the same as ``refresh`` with a redefined table, as CREATE OR REPLACE does."""

    def write(table: str, rows: pa.RecordBatchReader) -> Program[object]:
        columns = SCHEMA.serialize().to_pybytes()
        asked = Replace(table, (), None, columns, replaces_schema=True)
        layout = yield from layout_to_replace(hand.core, asked)
        return (yield from replacing(hand.core, asked, layout, rows))

    yield from _written_whole(hand, client, write)


def _written_whole(
    hand: Hand, client: Client, write: Callable[[str, pa.RecordBatchReader], Program[object]]
) -> Program[None]:
    if _single(hand):
        return (yield from lists(hand, client))
    table, key = _tables(hand, client, 1)[0], client.random.randrange(2)
    rows = yield from hand.look(table, "id >= 0")
    value = hand.world.value()
    for row in rows:
        if row["id"] == key:
            row["items"] += f",{value}"
    if rows:
        hand.attempt.tables.add(table)
        yield from write(table, pa.Table.from_pylist(rows, SCHEMA).to_reader())
        hand.attempt.record.append(key_of(table, key), value)
        yield from hand.save_if_due()


def keyed(hand: Hand, client: Client) -> Program[None]:
    """Add a row under the guard of an idempotency key."""
    yield from hand.add(_tables(hand, client, 1)[0])


BODIES: dict[str, Body] = {
    "transfer": transfer,
    "share": share,
    "lists": lists,
    "contended": contended,
    "hot": hot,
    "raises": raises,
    "add": add,
    "revise": revise,
    "take": take,
    "skew": skew,
    "snapshot": snapshot,
    "lifecycle": lifecycle,
    "alter": alter,
    "merge": merge,
    "optimize": optimize,
    "refresh": refresh,
    "redefine": redefine,
    "keyed": keyed,
    "numbered": keyed,
    "shared": lists,
    "carried": lists,
    "reshape": reshape,
}

"""Two clients, two tables and one commit: what the exhaustive tests and the scenarios are made of."""

from lakevilla.errors import ConflictError, TransactionAborted
from lakevilla.expressions.parse import parse_expression, parse_predicate
from lakevilla.sublogs.operations import Update
from lakevilla.testing import foreign
from lakevilla.testing.reader import run_now, table_rows
from lakevilla.testing.scheduler import Simulation
from lakevilla.testing.workloads import COLUMNS, context_of
from lakevilla.transaction.core import Transaction
from lakevilla.transaction.features import Feature
from lakevilla.transaction.finish import commit

TABLES = ("a", "b")
RI = Feature.R | Feature.I


def lake(faults=None, schedule=None, *, tables=TABLES, **options):
    """A simulation whose store holds tables of one account each, and their lake if ``warm``."""
    simulation = Simulation(faults=faults, schedule=schedule, **options)
    maker = Simulation(1)
    maker.store = simulation.store

    def set_up(client):
        for table in tables:
            rows = [{"id": n, "balance": 100, "items": ""} for n in (0, 1)]
            yield from foreign.create(client, table, COLUMNS, rows)

    maker.add("setup", set_up)
    maker.run()
    return simulation


def begin(client, features=RI, context=None, **options):
    context = context or context_of(client)
    txn = Transaction(context, features, client.ids.txn_id(), **options)
    txn.through_head = Feature.I in features
    return txn


def add_to(txn, table, amount, number=0):
    """Update one account."""
    operation = Update(
        table,
        {"balance": parse_expression(f"balance + {amount}")},
        parse_predicate(f"id = {number}"),
    )
    return (yield from txn.execute(operation, "update"))


def read(txn, table, where="id >= 0"):
    """The balances, as the caller sees them."""
    rows = (yield from txn.scan(table, None, parse_predicate(where))).read_all().to_pylist()
    return {row["id"]: row["balance"] for row in rows}


def transfer(client, source="a", target="b", amount=1):
    """One commit over two tables; "lost" if it was refused."""
    txn = begin(client)
    try:
        yield from add_to(txn, source, -amount)
        yield from add_to(txn, target, amount)
        yield from commit(txn)
    except (ConflictError, TransactionAborted):
        yield from txn.abort()
        return "lost"
    return "committed"


def balances(simulation, *tables):
    """All balances by table and id, as a reader of the bare format finds them."""
    return {
        table: {row["id"]: row["balance"] for row in table_rows(simulation.store, table)}
        for table in tables or TABLES
    }


def alone(simulation, program, name):
    """Run one program on the simulation's store, from a process of its own, without faults."""
    client = simulation_client(simulation, name)
    return run_now(simulation.store, program(client))


def simulation_client(simulation, name):
    from lakevilla.testing.client import Client

    return Client(simulation, name, f"{simulation.seed}/{name}", 1.0)

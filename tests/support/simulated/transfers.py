"""Amounts that transactions move between two tables, and operations that they draw."""

from lakevilla.errors import LakeVillaError
from lakevilla.global_log.repo import commits_since
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.store.effects import sleep
from lakevilla.sublogs.operations import Delete, Update
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.read_write import execute
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.tables.reader import run_now
from tests.support.simulated.commits import (
    TABLES,
    alone,
    balances,
    begin,
    end,
    simulation_client,
)
from tests.support.simulated.threads import recover


def commits(simulation):
    """Return the lake's commits by transactions, without the one that made the tables known."""
    held = context_of(simulation_client(simulation, "looks"))
    head = run_now(simulation.store, held.head()).head
    return [
        one
        for one in run_now(simulation.store, commits_since(head, head.history_start))
        if one.kind == "transaction"
    ][1:]


def moved(simulation):
    """Return the sum of the amounts that were moved; both tables must agree on it."""
    found = balances(simulation)
    assert found["a"][0] - 100 == 100 - found["b"][0]
    return found["a"][0] - 100


def drawn(source):
    """Return the operations of one member."""
    made = []
    for _ in range(source.randint(1, 3)):
        table, number = source.choice(TABLES), source.randrange(2)
        where = parse_predicate(source.choice((f"id = {number}", "balance > 90", "id >= 0")))
        match source.randrange(5):
            case 0:
                made.append(Delete(table, parse_predicate(f"id = {number} AND balance > 300")))
            case 1:
                # The number does not fit the column's type: the statement fails on such a row.
                value = "CASE WHEN balance > 120 THEN 9223372036854775807 + 1 ELSE balance + 7 END"
                made.append(Update(table, {"balance": parse_expression(value)}, where))
            case _:
                value = source.choice(("balance + 10", "balance * 2", f"{100 + number}"))
                made.append(Update(table, {"balance": parse_expression(value)}, where))
    return made


def performing(client, operations, context=None):
    """Perform deferred operations; return the id, with the counts or the kind of error."""
    txn = begin(client, context=context, defer=True)
    try:
        for one in operations:
            yield from execute(txn, one, type(one).__name__.lower())
        yield from sleep(0)  # the others do theirs, and commit at the same time
        yield from commit(txn)
    except LakeVillaError as error:
        yield from end(txn)
        return txn.id, error.kind
    return txn.id, [done.counts.rows for done in txn.work.done]


def check_whole_or_absent(simulation):
    """Check that each of the amounts 1, 10 and 100 was moved once or not at all."""
    alone(simulation, recover, "other")
    assert moved(simulation) in {a + b + c for a in (0, 1) for b in (0, 10) for c in (0, 100)}
    invariants.tables_follow_head(simulation.store, TABLES)
    invariants.no_id_commits_twice(simulation.store, TABLES)

"""Rename a table while other clients work on it, at every request of the rename (design
note 23).
"""

import pytest

from lakevilla.errors import (
    ConflictError,
    InvalidOperation,
    LakeVillaError,
    TableExists,
    TableNotFound,
)
from lakevilla.global_log.head import HEAD_KEY, NOWHERE, Head
from lakevilla.maintenance import recovery
from lakevilla.maintenance.gc.gc import gc
from lakevilla.store.codec import decode
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs import read_write
from lakevilla.transaction.verbs.catalog.names import rename
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import SCHEMA, context_of
from lakevilla_testing.histories.exhaustive import one_search
from lakevilla_testing.tables import delta_writer
from tests.support.simulated.commits import (
    TABLES,
    Process,
    add_to,
    alone,
    balances,
    begin,
    end,
    lake,
    transfer,
)


def renaming(old="a", new="new", amount=7):
    """Rename a table and make a transfer in one transaction; return the outcome."""

    def program(client):
        txn = begin(client)
        try:
            yield from rename(txn, old, old, new, new)
            yield from add_to(txn, "a", -amount)
            yield from add_to(txn, "b", amount)
            yield from commit(txn)
        except LakeVillaError as error:
            yield from end(txn)
            return type(error)
        return "renamed"

    return program


def create(client):
    txn = begin(client)
    try:
        yield from read_write.create(txn, "new", SCHEMA, [], {})
        yield from commit(txn)
    except LakeVillaError as error:
        yield from end(txn)
        return type(error)
    return "created"


def drop(client):
    txn = begin(client)
    yield from read_write.drop(txn, "a")
    yield from commit(txn)


def recover(client):
    return recovery.recover(context_of(client))


def foreign(client):
    yield from delta_writer.append(client, "a", [{"id": 5, "balance": 0, "items": ""}])


def nothing(client):
    yield from ()


def head_of(simulation):
    return decode(HEAD_KEY, simulation.store.objects[HEAD_KEY].body, Head)


def names_of(simulation):
    """Return the names in HEAD; check that no name means two tables, and no table is without a
    name.
    """
    head = head_of(simulation)
    names = dict(head.names.items())
    live = {location for location, state in head.tables.items() if not state.dropped}
    for name, location in names.items():
        assert name not in live or location in (name, NOWHERE), names
    for location in live:
        assert names.get(location) != NOWHERE or location in names.values(), names
    return names


def interrupted(other, *, request):
    """Return a rename before whose ``request``-th request ``other`` runs; None past the last
    request.
    """
    simulation = lake()
    process = Process(simulation, renaming(), "renamer")
    for _ in range(request):
        if not process.done:
            process.step()
    if process.done:
        return None
    return simulation, process, alone(simulation, other, "other")


def every_point(other):
    request = 0
    while (found := interrupted(other, request=request)) is not None:
        yield found
        request += 1
    assert request > 10


def settled(simulation):
    alone(simulation, recover, "recoverer")
    invariants.every_table_is_readable(simulation.store, TABLES)
    invariants.no_id_commits_twice(simulation.store, TABLES)
    invariants.tables_follow_head(simulation.store, TABLES)
    alone(simulation, lambda client: gc(context_of(client)), "collector")
    now = balances(simulation)
    assert sum(now["a"].values()) + sum(now["b"].values()) == 400
    return now


@pytest.mark.parametrize("other", [transfer, foreign, recover], ids=["rows", "foreign", "recover"])
@one_search
def test_a_rename_commits_with_whatever_other_clients_do_to_the_rows(other):
    for simulation, process, said in every_point(other):
        assert process.finish() == "renamed"
        assert names_of(simulation) == {"a": NOWHERE, "new": "a"}
        moved = 7 + (said == "committed")
        assert settled(simulation)["b"][0] == 100 + moved


@one_search
def test_the_second_of_two_renames_of_one_table_is_reported():
    first, second = 0, 0
    for simulation, process, said in every_point(renaming(new="other", amount=1)):
        mine = process.finish()
        # If it begins after the other's commit, its name is only a path; see ``known_name``.
        assert {mine, said} - {"renamed"} < {ConflictError, InvalidOperation}, (mine, said)
        assert [mine, said].count("renamed") == 1, (mine, said)
        names = names_of(simulation)
        assert names == {"a": NOWHERE, "new" if mine == "renamed" else "other": "a"}
        assert settled(simulation)["b"][0] == 100 + (7 if mine == "renamed" else 1)
        first += mine == "renamed"
        second += mine != "renamed"
    assert first
    assert second


@pytest.mark.parametrize("other", [renaming(old="b", amount=1), create], ids=["rename", "create"])
@one_search
def test_the_second_of_two_renames_to_one_name_is_refused(other):
    first, second = 0, 0
    for simulation, process, said in every_point(other):
        mine = process.finish()
        assert [mine, said].count("renamed") + (said == "created") == 1, (mine, said)
        assert {mine, said} & {TableExists, InvalidOperation}, (mine, said)
        assert names_of(simulation).get("new") == (
            "a" if mine == "renamed" else "b" if said == "renamed" else None
        )
        first += mine == "renamed"
        second += mine != "renamed"
        settled(simulation)
    assert first
    assert second


@one_search
def test_a_rename_of_a_table_that_another_client_drops_is_refused():
    lost = 0
    for simulation, process, _ in every_point(drop):
        mine = process.finish()
        assert mine in ("renamed", ConflictError, TableNotFound)
        lost += mine is ConflictError
        assert ("new" in names_of(simulation)) == (mine == "renamed")
    assert lost


@one_search
def test_a_table_whose_rename_is_cut_off_has_its_old_or_its_new_name():
    renamed, kept = 0, 0
    for simulation, process, _ in every_point(nothing):
        del process
        names = names_of(simulation)
        assert names in ({}, {"a": NOWHERE, "new": "a"})
        moved = settled(simulation)["b"][0] - 100
        assert moved == (7 if names else 0)
        renamed += bool(names)
        kept += not names
        claim = simulation.store.objects["a/_lakevilla/lake.json"].body
        assert (b'"new"' in claim) == bool(names)
    assert renamed
    assert kept

"""Step 2, sealing: all that a transaction did to each table, under a name with the hash of its
bytes.
"""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.formats.base import Change
from lakevilla.global_log.commits import read_commit
from lakevilla.sublogs.operations import Create, Drop
from lakevilla.transaction.commit.upload import Sealed, seal_commit, tables_written
from lakevilla.transaction.state.transaction import TransactionState
from tests.support import by_hand
from tests.support.by_hand import data_file, outcome, removal


@pytest.fixture
def txn() -> TransactionState:
    context = by_hand.make_context()
    by_hand.make_tail(context, (data_file("old", 0, 9),))
    by_hand.make_tail(context, location="u", table_id="two")
    return by_hand.begun(context, "t", "u")


def sealed(txn: TransactionState) -> Sealed:
    return outcome(seal_commit(txn))


def test_sealing_a_commit_sends_no_request_and_lists_each_table_once(txn: TransactionState) -> None:
    by_hand.appended(txn, data_file("x", 20, 29))
    by_hand.appended(txn, data_file("y", 30, 39), "u")
    by_hand.appended(txn, data_file("z", 40, 49))
    found = sealed(txn).commit
    assert tables_written(txn) == list(found.tables) == ["t", "u"]
    assert [file.path for file in found.tables["t"].change.adds] == ["x", "z"]
    assert found.tables["u"].table_id == "two"
    assert len(found.operations) == 3


def test_a_commit_object_is_named_by_its_hash_and_differs_at_each_sealing(
    txn: TransactionState,
) -> None:
    by_hand.appended(txn, data_file("x", 20, 29))
    first, second = sealed(txn), sealed(txn)
    assert read_commit(first.key, first.body) == first.commit
    assert first.key != second.key, "no two writes have equal bytes"
    assert txn.ending.digests == {first.digest, second.digest}
    with pytest.raises(lv.CorruptObject, match="does not hold the bytes"):
        read_commit(first.key, second.body)


def test_a_table_with_only_appends_is_marked_blind_unless_it_was_read(
    txn: TransactionState,
) -> None:
    by_hand.appended(txn, data_file("x", 20, 29))
    by_hand.appended(txn, data_file("y", 20, 29), "u")
    assert [part.blind for part in sealed(txn).commit.tables.values()] == [True, True]
    by_hand.read(txn, table="u")
    assert [part.blind for part in sealed(txn).commit.tables.values()] == [True, False]
    by_hand.updated(txn, "id = 3", data_file("old", 0, 9), data_file("new", 0, 9))
    assert [part.blind for part in sealed(txn).commit.tables.values()] == [False, False]


def test_a_file_added_and_removed_again_is_not_in_the_commit_object(txn: TransactionState) -> None:
    first = data_file("x", 20, 29)
    by_hand.appended(txn, first)
    by_hand.updated(txn, "id = 20", first, data_file("y", 20, 29))
    change = sealed(txn).commit.tables["t"].change
    assert [file.path for file in change.adds] == ["y"]
    assert change.removes == ()
    assert removal(first) is not None


def test_tables_are_marked_as_dropped_or_created_by_their_operations(txn: TransactionState) -> None:
    by_hand.did(txn, Drop("t", "one"), Change())
    by_hand.did(txn, Create("u", Change()), Change())
    by_hand.appended(txn, data_file("y", 20, 29), "u")
    parts = sealed(txn).commit.tables
    assert (parts["t"].dropped, parts["t"].created) == (True, False)
    assert (parts["u"].dropped, parts["u"].created) == (False, True)

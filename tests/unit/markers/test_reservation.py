"""Reservations in HEAD: they put their transactions ahead of all tickets."""

from __future__ import annotations

import msgspec
import pytest

from lakevilla.formats.base import Change
from lakevilla.global_log.head import Head, Reservation
from lakevilla.markers.reservation import remaining, reserved_ahead, reserved_by
from lakevilla.sublogs.operations import Append
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from tests.support import by_hand


@pytest.fixture
def txn() -> TransactionState:
    context = by_hand.make_context()
    for table in "ab":
        by_hand.make_tail(context, location=table)
    return by_hand.begun(context, "a", "b", features=Feature.I)


def head(*reservations: tuple[str, str]) -> Head:
    """Return a HEAD with reservations of transactions for tables, each named by one letter."""
    empty = by_hand.empty_head("lake", "root", "0", 1)
    reserved = tuple(Reservation(txn, tuple(tables)) for txn, tables in reservations)
    return msgspec.structs.replace(empty, reserved=reserved)


def ahead(txn: TransactionState, head: Head | None) -> list[tuple[str, str]]:
    return [(one.txn, "".join(one.tables)) for one in reserved_ahead(txn, head)]


def test_only_writers_wait_for_the_reservation_of_a_table(txn: TransactionState) -> None:
    reserved = head(("x", "ab"), ("y", "c"))
    by_hand.read(txn, table="b")
    assert ahead(txn, reserved) == [], "a read can't invalidate them"
    by_hand.did(txn, Append("b", ()), Change())
    assert ahead(txn, reserved) == [("x", "b")]


def test_a_reservation_is_behind_earlier_reservations_of_the_same_table(
    txn: TransactionState,
) -> None:
    by_hand.did(txn, Append("a", ()), Change())
    assert ahead(txn, head(("x", "a"), (txn.id, "a"), ("y", "a"))) == [("x", "a")]
    assert reserved_by(head((txn.id, "a"), ("y", "b")), txn.id) == {"a"}


def test_a_reservation_of_a_dead_transaction_is_ignored_and_left_out_of_the_next_head(
    txn: TransactionState,
) -> None:
    by_hand.did(txn, Append("a", ()), Change())
    reserved = head(("x", "a"), (txn.id, "a"), ("y", "a"))
    txn.context.given_up.holders.add("x")
    assert ahead(txn, reserved) == []
    assert [one.txn for one in remaining(txn, reserved)] == ["y"]
    # Removed from HEAD and stored there again, it counts again.
    assert ahead(txn, head()) == []
    assert ahead(txn, reserved) == [("x", "a")]


def test_a_lake_without_head_has_no_reservations(txn: TransactionState) -> None:
    assert (ahead(txn, None), reserved_by(None, txn.id)) == ([], frozenset())


def test_a_guest_passes_the_reservations_for_guests_and_takes_them_away(
    txn: TransactionState,
) -> None:
    reserved = msgspec.structs.replace(
        head(),
        reserved=(
            Reservation("x", ("a",)),
            Reservation("y", ("a", "b"), guest=True),
            Reservation("z", ("c",), guest=True),
        ),
    )
    by_hand.did(txn, Append("a", ()), Change())
    assert ahead(txn, reserved) == [("x", "a"), ("y", "a")]
    assert [one.txn for one in remaining(txn, reserved)] == ["x", "y", "z"]
    txn.claims.is_guest = True
    assert ahead(txn, reserved) == [("x", "a")], "an escalated transaction goes before guests"
    assert [one.txn for one in remaining(txn, reserved)] == ["x", "z"]

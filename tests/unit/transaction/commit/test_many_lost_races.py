"""A transaction that loses many races in one commit reserves its tables, once."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace

import pytest

from lakevilla.formats.base import Change
from lakevilla.global_log.repo import HeldHead
from lakevilla.store.base import Token
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Append
from lakevilla.sublogs.own_record import HeldRecord
from lakevilla.transaction.commit import decide
from lakevilla.transaction.commit.together.combine import may_be_member
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from tests.support import by_hand
from tests.support.wait_graphs import record


def reserved_at(
    monkeypatch: pytest.MonkeyPatch, *, epoch: str = "", deferred: bool = False
) -> list[int]:
    """Return the numbers of the lost races after which a transaction reserves its table."""
    context = by_hand.make_context()
    by_hand.make_tail(context)
    context.remember(HeldHead(by_hand.empty_head("lake", "root", "0", 1), Token("head")))
    txn = by_hand.begun(context, features=Feature.I)
    by_hand.did(txn, Append("t", ()), Change())
    txn.work.done[0].deferred = deferred
    monkeypatch.setattr(type(context), "epoch", epoch)
    found: list[int] = []

    def reserve(of: TransactionState, tables: Collection[str]) -> Program[None]:
        assert (of, set(tables)) == (txn, {"t"})
        found.append(of.work.lost)
        yield from ()

    monkeypatch.setattr(decide, "reserve", reserve)
    for _ in range(3 * decide._MOST_LOST):
        by_hand.outcome(decide._go_first(txn))
    return found


def test_a_transaction_reserves_its_tables_after_many_lost_races(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert reserved_at(monkeypatch) == [16]


def test_a_transaction_on_a_branch_reserves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reserved_at(monkeypatch, epoch="e") == []


def test_a_transaction_that_waits_for_a_leader_reserves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader would wait for the reservation, as long as it waits for any."""
    assert reserved_at(monkeypatch, deferred=True) == []


def test_a_transaction_with_a_reservation_is_no_member() -> None:
    context = by_hand.make_context()
    by_hand.make_tail(context)
    context.engine = SimpleNamespace(spreads=1)  # type: ignore[assignment]
    txn = by_hand.begun(context, features=Feature.R | Feature.I)
    txn.through_head = True
    assert may_be_member(txn)
    txn.claims.record = HeldRecord(record(txn.id), Token("record"), 0.0)
    assert not may_be_member(txn)

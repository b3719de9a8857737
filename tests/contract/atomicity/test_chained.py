"""Functions of ``lake.run`` that read what they change wait for their turn (note 69)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.api.run import code_of
from lakevilla.transaction.commit.together import chain
from lakevilla.transaction.commit.together.chain import chain_of
from tests.support.inside import executor, inside
from tests.support.places import Place
from tests.support.tables import accounts

Work = Callable[[lv.Transaction], Any]
THREADS, EACH = 8, 5


class SoldOut(Exception):
    """The function's own error."""


@pytest.fixture
def lake(local_place: Place) -> Iterator[lv.Lake]:
    with local_place.connect() as lake:
        lake.create_table("bank", accounts(3, 0), format=local_place.format)
        yield lake


def chained(lake: lv.Lake, *functions: Work) -> None:
    """Behave as if these functions had met others on the same rows."""
    context = inside(lake).context
    for one in functions:
        chain_of(context).note_conflict(context, code_of(one))


def side_by_side(*calls: Callable[[], object]) -> None:
    threads = [threading.Thread(target=one) for one in calls]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def balance(txn: lv.Transaction | lv.Lake, number: int = 0) -> int:
    return int(txn.read("bank", where=f"id = {number}")["balance"][0].as_py())


def test_rows_stay_in_memory_until_the_lake_is_closed(lake: lv.Lake) -> None:
    def add(txn: lv.Transaction) -> None:
        txn.update("bank", {"balance": str(balance(txn) + 1)}, where="id = 0")

    chained(lake, add)
    for number in range(3):
        lake.run(add)
        assert list(chain_of(inside(lake).context).rows._kept) == ["bank"], number
    lake.close()
    assert not chain_of(inside(lake).context).rows._kept
    lake.run(add)
    assert balance(lake) == 4


def test_calls_that_only_read_leave_the_rows_to_the_next(lake: lv.Lake) -> None:
    def look(txn: lv.Transaction) -> int:
        return balance(txn)

    def add(txn: lv.Transaction) -> None:
        txn.update("bank", {"balance": str(balance(txn) + 1)}, where="id = 0")

    chained(lake, look, add)
    assert lake.run(look) == 0
    assert list(chain_of(inside(lake).context).rows._kept) == ["bank"]
    lake.run(add)
    assert lake.run(look) == 1


def test_each_call_reads_what_the_one_before_has_written(lake: lv.Lake) -> None:
    calls: list[int] = []
    told: list[Any] = []

    def count(txn: lv.Transaction) -> int:
        calls.append(0)
        found = balance(txn) + 1
        txn.update("bank", {"balance": found}, where="id = 0")
        return found

    def caller() -> None:
        told.extend(lake.run(count) for _ in range(EACH))

    chained(lake, count)
    side_by_side(*[caller] * THREADS)
    assert sorted(told) == list(range(1, THREADS * EACH + 1))
    assert len(calls) <= 1.3 * THREADS * EACH
    assert len(lake.history(limit=1000)) < THREADS * EACH, "they share versions"


def test_a_transfer_of_many_threads_keeps_the_sum_and_overdraws_nothing(lake: lv.Lake) -> None:
    refused: list[int] = []
    lake.run(lambda txn: txn.update("bank", {"balance": 10}, where="true"))

    def pay(txn: lv.Transaction, source: int, target: int) -> None:
        found = balance(txn, source)
        if found == 0:
            raise SoldOut
        txn.update("bank", {"balance": found - 1}, where=f"id = {source}")
        txn.update("bank", {"balance": "balance + 1"}, where=f"id = {target}")

    def caller(number: int) -> Callable[[], None]:
        def call() -> None:
            for _ in range(EACH):
                try:
                    lake.run(pay, number % 2, 2)
                except SoldOut:
                    refused.append(number)

        return call

    chained(lake, pay)
    side_by_side(*map(caller, range(THREADS)))
    rows = {row["id"]: row["balance"] for row in lake.read("bank").to_pylist()}
    paid = THREADS * EACH - len(refused)
    assert rows == {0: 0, 1: 0, 2: 30}
    assert paid == 20


def test_chain_false_and_the_setting_switch_it_off(lake: lv.Lake, local_place: Place) -> None:
    turns: list[bool] = []

    def look(txn: lv.Transaction) -> None:
        turns.append(executor(txn).state.turn is not None)
        txn.update("bank", {"balance": 1}, where="id = 0")

    chained(lake, look)
    lake.run(look)
    lake.run(look, chain=False)
    with local_place.connect(settings=lv.Settings(combine=False)) as other:
        chained(other, look)
        other.run(look)
    assert turns == [True, False, False]
    with pytest.raises(lv.InvalidOperation, match="chain must be True or False"):
        lake.run(look, chain=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "unfit",
    [
        lambda txn: txn.save(),
        lambda txn: txn.abort(),
        lambda txn: txn.overwrite("bank", accounts(3, 0)),
        lambda txn: txn.create_table("other", accounts(1)),
        lambda txn: txn.alter("bank", set_properties={"note": "1"}),
        lambda txn: txn.drop_table("bank"),
    ],
    ids=["save", "abort", "overwrite", "create_table", "alter", "drop_table"],
)
def test_a_function_with_a_verb_that_no_chain_can_have_runs_by_itself(
    lake: lv.Lake, unfit: Work
) -> None:
    turns: list[bool] = []

    def work(txn: lv.Transaction) -> str:
        turns.append(executor(txn).state.turn is not None)
        txn.update("bank", {"balance": 1}, where="id = 0")
        unfit(txn)
        return "done"

    chained(lake, work)
    assert lake.run(work) == "done"
    assert lake.run(work) == "done" if "bank" in lake.tables() else True
    assert turns[:2] == [True, False]
    assert not any(turns[2:]), "it is not tried in a chain again"


def test_the_first_write_to_a_clone_is_not_in_a_chain(lake: lv.Lake) -> None:
    lake.clone("bank", "trial")
    turns: list[bool] = []

    def write(txn: lv.Transaction) -> None:
        turns.append(executor(txn).state.turn is not None)
        txn.append("trial", accounts(1))

    chained(lake, write)
    lake.run(write)
    assert turns == [True, False]
    assert lake.read("trial").num_rows == 4


def test_an_error_that_a_function_makes_of_a_conflict_is_not_let_out(lake: lv.Lake) -> None:
    turns: list[bool] = []

    def refuse(txn: lv.Transaction) -> None:
        turns.append(executor(txn).state.turn is not None)
        found = balance(txn)
        try:
            txn.save()
        except lv.ConflictError as conflict:
            raise SoldOut(f"in a chain: {found}") from conflict
        raise SoldOut("alone")

    chained(lake, refuse)
    with pytest.raises(SoldOut, match="alone"):
        lake.run(refuse)
    assert turns == [True, False]


def test_transactional_functions_are_told_from_each_other(lake: lv.Lake) -> None:
    turns: dict[str, bool] = {}

    def saves(txn: lv.Transaction, *, note: str) -> None:
        turns[note] = executor(txn).state.turn is not None
        txn.save()

    def counts(txn: lv.Transaction, number: int, *, by: int) -> int:
        turns["counts"] = executor(txn).state.turn is not None
        txn.update("bank", {"balance": balance(txn, number) + by}, where=f"id = {number}")
        return by

    chained(lake, saves, counts)
    lake.transactional()(saves)(note="first")
    assert lake.transactional()(counts)(1, by=2) == 2
    assert balance(lake, 1) == 2  # type: ignore[arg-type]
    assert turns == {"first": False, "counts": True}


def test_a_run_within_a_function_is_not_in_the_chain(lake: lv.Lake) -> None:
    def inner(txn: lv.Transaction) -> None:
        txn.update("bank", {"balance": "balance + 1"}, where="id = 1")

    def outer(txn: lv.Transaction) -> None:
        txn.update("bank", {"balance": "balance + 1"}, where="id = 0")
        lake.run(inner)

    chained(lake, inner, outer)
    lake.run(outer)
    rows = {row["id"]: row["balance"] for row in lake.read("bank").to_pylist()}
    assert rows == {0: 1, 1: 1, 2: 0}
    newest, before, *_ = lake.history()
    assert not before.members, "the inner one has committed first"
    assert len(newest.members) == 1


def test_the_others_go_on_without_a_function_that_does_not_return(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "_TURN_SECONDS", 0.2)
    has_turn, may_end = threading.Event(), threading.Event()
    turns: list[bool] = []

    def stuck(txn: lv.Transaction) -> None:
        turns.append(executor(txn).state.turn is not None)
        txn.update("bank", {"balance": 1000}, where="id = 0")
        has_turn.set()
        assert may_end.wait(60)
        txn.update("bank", {"balance": "balance + 1"}, where="id = 1")

    def quick(txn: lv.Transaction) -> int:
        found = balance(txn)
        txn.update("bank", {"balance": found + 1}, where="id = 0")
        return found

    chained(lake, stuck, quick)
    slow = threading.Thread(target=lambda: lake.run(stuck))
    slow.start()
    assert has_turn.wait(60)
    began = time.monotonic()
    told: list[Any] = []
    side_by_side(*[lambda: told.append(lake.run(quick))] * 3)
    assert time.monotonic() - began < 30
    assert sorted(told) == [0, 1, 2], "nothing of the one that is stuck was seen"
    may_end.set()
    slow.join()
    assert turns == [True, False], "it has run again by itself"
    rows = {row["id"]: row["balance"] for row in lake.read("bank").to_pylist()}
    assert rows == {0: 1000, 1: 1, 2: 0}


def test_members_are_found_by_their_ids_and_shown_with_their_versions(lake: lv.Lake) -> None:
    ids: list[str] = []

    def work(txn: lv.Transaction) -> None:
        ids.append(txn.id)
        txn.update("bank", {"balance": balance(txn) + 1}, where="id = 0")

    chained(lake, work)
    lake.run(work)
    assert lake.outcome(ids[0]).state == "committed"
    assert ids[0] in [member for entry in lake.history() for member in entry.members]

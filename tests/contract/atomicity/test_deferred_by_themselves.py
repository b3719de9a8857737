"""``lake.run`` raises an error where its verb stands, also if it defers operations (note 68)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lakevilla as lv
from lakevilla.transaction.commit.together.combine import Combining
from tests.support.combined import Work, combine
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.tables import accounts, in_order


class Refused(Exception):
    """The function's own error."""


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


@pytest.fixture(params=["cold", "hot"])
def lake(request: pytest.FixtureRequest, place: Place) -> Iterator[lv.Lake]:
    """Return a lake with a rule; a hot one behaves as if many threads changed the same rows."""
    with place.connect() as lake:
        lake.create_table("bank", accounts(2, 0))
        lake.create_table("log", accounts(1, 0))
        lake.run(lambda txn: txn.alter("bank", add_constraints={"paid": "balance >= 0"}))
        if request.param == "hot":
            context = inside(lake).context
            group = context.groups.named("combine", Combining)
            assert isinstance(group, Combining)
            group.note_hot(context)
        yield lake


def spend(txn: lv.Transaction) -> lv.OperationResult:
    return txn.update("bank", {"balance": "balance - 1"}, where="id = 0")


def spend_or(txn: lv.Transaction) -> lv.OperationResult | None:
    """Spend what is not there, inside the function's own ``try``."""
    try:
        return spend(txn)
    except lv.InvalidOperation:
        return None


def test_the_function_is_not_called_more_often_than_its_caller_says(lake: lv.Lake) -> None:
    calls = []

    def once(txn: lv.Transaction) -> None:
        calls.append(txn)
        spend(txn)

    with pytest.raises(lv.InvalidOperation, match=r"^table bank: constraint paid"):
        lake.run(once, attempts=1)
    assert len(calls) == 1


def test_a_look_at_counts_outside_the_try_raises_nothing(lake: lv.Lake) -> None:
    def look(txn: lv.Transaction) -> int:
        done = spend_or(txn)
        return -1 if done is None else done.rows_updated

    assert lake.run(look) == -1


def test_an_error_of_the_function_itself_comes_after_those_of_its_verbs(lake: lv.Lake) -> None:
    def refuse(txn: lv.Transaction) -> str:
        if spend_or(txn) is None:
            return "sold out"
        raise Refused

    assert lake.run(refuse) == "sold out"


def test_an_error_of_the_function_itself_calls_it_no_second_time(lake: lv.Lake) -> None:
    calls = []

    def refuse(txn: lv.Transaction) -> None:
        calls.append(txn)
        txn.update("log", {"balance": "balance + 1"}, where="true")
        raise Refused

    with pytest.raises(Refused):
        lake.run(refuse)
    assert len(calls) == 1
    assert lake.read("log").to_pylist() == accounts(1, 0)


def test_after_a_conflict_the_verb_still_raises_its_own_error(place: Place, lake: lv.Lake) -> None:
    seen: list[lv.OperationResult | None] = []

    def spend_after_a_look(txn: lv.Transaction) -> None:
        assert txn.update("log", {"balance": "balance + 1"}, where="balance < 3").rows_updated < 2
        if not seen:
            with place.connect() as other:
                other.run(lambda txn: txn.update("log", {"balance": 5}, where="true"))
        seen.append(spend_or(txn))

    lake.run(spend_after_a_look)
    assert seen[-1] is None
    assert lake.read("log").to_pylist() == accounts(1, 5)


def test_inserted_values_are_stored_with_the_changes_of_others(place: Place) -> None:
    def pay(number: int) -> Work:
        def work(txn: lv.Transaction) -> None:
            txn.update("bank", {"balance": "balance + 1"}, where="id = 0")
            txn.sql(f"INSERT INTO log VALUES ({number}, 7 * {number})")

        return work

    with place.connect() as lake:
        lake.create_table("bank", accounts(2, 0))
        lake.create_table("log", accounts(1, 0))
        done = combine(lake, pay(1), pay(2), pay(3))
        first, second, third = (one.result.global_version for one in done if one.result)
        assert first is not None
        assert second == third == first + 1
        assert in_order(lake.read("log"))[1:] == [{"id": n, "balance": 7 * n} for n in (1, 2, 3)]
        assert lake.read("bank", where="id = 0").to_pylist() == [{"id": 0, "balance": 3}]

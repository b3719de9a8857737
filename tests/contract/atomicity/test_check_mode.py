"""A real S3 endpoint without conditional writes, through the public API."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

import lakevilla as lv
from tests.contract.atomicity.conftest import Open
from tests.support.gateway import Flaw
from tests.support.tables import accounts, kinds, values

#: Short intervals of checks: no two clients of these tests write at the same time.
QUICK = lv.Settings(check_interval_seconds=0.002, retry_limit=3, retry_base_seconds=0.01)


def transfer(lake: lv.Lake, amount: int) -> None:
    def move(txn: lv.Transaction) -> None:
        for table, sign in (("bank_x", "-"), ("bank_y", "+")):
            txn.update(table, {"balance": f"balance {sign} {amount}"}, where="id = 0")

    lake.run(move)


def balance(lake: lv.Lake, table: str) -> int:
    [row] = lake.snapshot().read(table, where="id = 0").to_pylist()
    found: int = row["balance"]
    return found


def test_a_store_that_ignores_conditions_is_refused_naming_the_check_and_the_option(
    behind: Open,
) -> None:
    place, _ = behind("ignored")
    with (
        place.connect(settings=QUICK) as lake,
        pytest.raises(lv.UnsafeStore, match=r"is refused|current token is stored") as error,
    ):
        lake.create_table("bank_x", {"id": [1]})
    assert 'conditional_writes="check"' in error.value.message


def test_a_store_that_refuses_conditions_raises_an_error_naming_the_option(behind: Open) -> None:
    place, _ = behind("refused")
    with place.connect(settings=QUICK) as lake, pytest.raises(lv.StoreError) as error:
        lake.create_table("bank_x", {"id": [1]})
    assert 'conditional_writes="check"' in error.value.message


@pytest.mark.parametrize("flaw", ["ignored", "refused"])
@pytest.mark.night
def test_clients_that_write_in_turns_see_each_others_commits_with_checks(
    behind: Open, flaw: Flaw, caplog: pytest.LogCaptureFixture
) -> None:
    place, gateway = behind(flaw)
    events: list[lv.Event] = []
    options: dict[str, Any] = {"settings": QUICK, "conditional_writes": "check"}
    with (
        caplog.at_level(logging.WARNING, "lakevilla"),
        place.connect(on_event=events.append, **options) as one,
        place.connect(**options) as two,
    ):
        one.create_table("bank_x", accounts(1))
        probed = gateway.conditional
        assert probed > 0
        two.create_table("bank_y", accounts(1))
        for turn in range(2):
            transfer(one, 1 + turn)
            transfer(two, 10)
        two.run(lambda txn: txn.append("bank_x", accounts(2)[1:]))
        one.run(lambda txn: txn.append("bank_x", [{"id": 2, "balance": 0}]))
        # A commit by a log entry alone.
        two.run(
            lambda txn: txn.append("bank_y", [{"id": 1, "balance": 0}]), features=lv.Feature.NONE
        )
        for lake in (one, two):
            assert balance(lake, "bank_x") == 77
            assert balance(lake, "bank_y") == 123
            assert values(lake.snapshot().read("bank_x")) == [0, 1, 2]
            assert values(lake.snapshot().read("bank_y")) == [0, 1]
        assert one.recover().ok
    assert gateway.conditional == probed, "nothing but the probe asks for conditions"
    assert kinds(events).count("unsafe_store") == 1
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert ["best effort" in record.getMessage() for record in told] == [True]
    assert values(place.delta("bank_x").to_pyarrow_table()) == [0, 1, 2]


def test_a_store_with_conditional_writes_is_used_with_conditions(behind: Open) -> None:
    place, gateway = behind("none")
    events: list[lv.Event] = []
    with place.connect(settings=QUICK, conditional_writes="check", on_event=events.append) as lake:
        lake.create_table("bank_x", accounts(1))
        probed = gateway.conditional
        lake.run(lambda txn: txn.append("bank_x", accounts(2)[1:]))
    assert gateway.conditional > probed
    assert "unsafe_store" not in kinds(events)


def test_a_reader_that_may_not_write_needs_no_probe(behind: Open) -> None:
    place, gateway = behind("ignored")
    with place.connect(settings=QUICK, conditional_writes="check") as lake:
        lake.create_table("bank_x", accounts(1))
    seen = gateway.conditional
    with place.connect(settings=QUICK, conditional_writes="check") as reader:
        assert balance(reader, "bank_x") == 100
    assert gateway.conditional == seen


def test_the_option_is_kept_by_pickle_and_checked(behind: Open) -> None:
    place, _ = behind("ignored")
    with place.connect(settings=QUICK, conditional_writes="check") as lake:
        copy = pickle.loads(pickle.dumps(lake))
    with copy:
        copy.create_table("bank_x", accounts(1))
        assert balance(copy, "bank_x") == 100
    with pytest.raises(lv.InvalidOperation, match="conditional_writes"):
        place.connect(conditional_writes="maybe")

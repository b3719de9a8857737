"""Showing the library's objects in shells and notebooks costs at most one request."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.display import MOST_ROWS, HtmlList, size_text, table_html
from lakevilla.store.base import Failure
from tests.support.inside import inside


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path) as lake:
        lake.create_table("sales/orders", [{"id": 1, "city": "Bonn"}], partition_by="city")
        with lake.transaction() as txn:
            txn.append("sales/orders", [{"id": 2, "city": "Ulm"}])
        yield lake


def quietly(lake: lv.Lake, show: Callable[[], str]) -> tuple[str, int]:
    """Return the text shown, and the number of GETs it cost."""
    with inside(lake).requests.counting() as requests:
        text = show()
    assert requests.total == requests.get
    return text, requests.get


def test_repr_sends_no_request_and_html_at_most_one(lake: lv.Lake) -> None:
    txn = lake.transaction()
    wrote = txn.update("sales/orders", {"id": "id + 1"}, where="true")
    past = lake.snapshot(version=1)
    held: dict[str, Any] = {
        "Lake": lake,
        "Table": lake.table("sales/orders"),
        "Snapshot": past,
        "Transaction": txn,
        "OperationResult": wrote,
        "history": lake.history(),
        "log": lake.table("sales/orders").history(),
        "tables": lake.tables(),
        "transactions": lake.transactions(),
        "report": lake.doctor(),
        "capabilities": lake.capabilities("sales/orders"),
    }
    for name, value in held.items():
        text, gets = quietly(lake, lambda value=value: repr(value))
        assert gets == 0, name
        assert "object at 0x" not in text, name
        text, gets = quietly(lake, lambda value=value: value._repr_html_())
        assert gets == (name == "Lake"), name
        assert text.startswith(
            "<table>" if name not in ("OperationResult", "transactions") else "<p>"
        )
    assert "qty" not in repr(wrote)
    assert "not counted yet" in wrote._repr_html_()  # showing the result does not count its rows
    txn.abort()


def test_reprs_and_html_show_the_main_facts_of_each_object(lake: lv.Lake) -> None:
    assert repr(lake) == f"<lakevilla.Lake {lake.root}, version 2, 1 table>"
    assert "<td>sales/orders</td><td>delta</td><td>1</td>" in lake._repr_html_()
    table = lake.table("sales/orders")
    assert repr(table) == (
        f"<lakevilla.Table sales/orders: delta, version 1, 2 columns, {lake.root}/sales/orders>"
    )
    html = table._repr_html_()
    assert "<td>id</td><td>int64</td>" in html
    assert "<td>city</td><td>string</td><td></td><td>partition</td>" in html
    assert "2 rows, 2 files, " in html
    assert "bytes" in html or "KiB" in html
    state = lake.snapshot()
    assert repr(state).endswith("bound when it is first read>")
    state.read("sales/orders")
    assert repr(state).endswith(", version 2, 1 table>")
    with lake.transaction() as txn:
        txn.delete("sales/orders", "id = 1")
        txn.read("sales/orders", where="id = 2")
        assert repr(txn) == f"<lakevilla.Transaction {txn.id} open, 1 write>"
        html = txn._repr_html_()
        assert "<td>sales/orders</td><td>DELETE</td><td>predicate: id = 1</td>" in html
        assert "<td>sales/orders</td><td>read</td>" in html
    assert "committed" in repr(txn)
    assert "global_version" in txn.result._repr_html_()
    entries = lake.history()
    assert repr(entries).count("\n") == len(entries) - 1 == 2
    assert entries == list(entries)
    assert "HistoryEntry: 3" in entries._repr_html_()  # type: ignore[attr-defined]


def test_the_size_of_a_table_is_shown_if_the_client_has_it_cached(lake: lv.Lake) -> None:
    """The number of rows comes from the table's log, or from an Iceberg table's summary."""
    lake.create_table("ice", [{"id": i} for i in range(5)], format="iceberg")
    assert "5 rows, 1 file, " in lake.table("ice")._repr_html_()
    orders = lake.table("sales/orders")
    with lake.transaction() as txn:
        txn.append("sales/orders", [{"id": 3, "city": "Ulm"}])
    lake.table("sales/orders")
    assert "2 rows" in orders._repr_html_()  # the size at the object's version, not at the newest
    there = pickle.loads(pickle.dumps(orders))
    assert repr(there) == repr(orders)
    assert " rows, " not in there._repr_html_()  # the unpickled object has no log cached


def test_a_lake_that_cannot_be_read_is_shown_from_the_cache(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Failure:
        return Failure("the store is away", ambiguous=False)

    monkeypatch.setattr(inside(lake).store, "get", fails)
    html, gets = quietly(lake, lake._repr_html_)
    assert gets == 1, "and nobody waits for more"
    assert "version 2, 1 table; cannot be read now: " in html
    assert "the store is away" in html
    assert "<td>sales/orders</td>" in html


def test_html_of_a_commit_describes_its_operation_in_words(lake: lv.Lake) -> None:
    html = lake.history()._repr_html_()
    assert "table sales/orders, operation WRITE, parameters mode: Append" in html
    assert "LoggedOperation" not in html


def test_an_empty_lake_is_shown_as_such() -> None:
    lake = lv.connect("memory://nothing-there")
    assert repr(lake) == "<lakevilla.Lake memory://nothing-there>"
    assert "nothing was committed yet" in lake._repr_html_()


def test_shown_html_is_escaped_and_limited_in_length() -> None:
    html = table_html("<b>", ("<i>",), [("<script>",)] * (MOST_ROWS + 7))
    assert "<b>" not in html
    assert "<script>" not in html
    assert "and 7 more" in html
    assert "..." in table_html("", ("a",), [("x" * 10_000,)])
    assert HtmlList()._repr_html_() == "<p>none</p>"
    assert repr(HtmlList()) == "[]"
    assert [size_text(n) for n in (3, 2048, 5 * 1024**3)] == ["3 bytes", "2.0 KiB", "5.0 GiB"]


# -- dropped transactions ----------------------------------------------------------------


def dropped(begin: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        begin()
        gc.collect()
    kinds = (ResourceWarning, lv.LakeVillaWarning)
    return [str(one.message) for one in noted if one.category in kinds]


def test_a_warning_reports_an_open_transaction_without_references(lake: lv.Lake) -> None:
    def forget() -> None:
        lake.transaction().append("sales/orders", [{"id": 9, "city": "Ulm"}])

    (message,) = dropped(forget)
    assert "was dropped and neither committed nor aborted" in message
    assert "(1 operation) is lost" in message
    assert "with lake.transaction()" in message
    (message,) = dropped(lambda: lake.transaction().read("sales/orders"))
    assert "lost" not in message


@pytest.mark.night
def test_python_shows_the_warning_of_lost_writes_by_default(tmp_path: Path) -> None:
    program = (
        "import lakevilla as lv\n"
        f"lake = lv.connect({str(tmp_path / 'w')!r})\n"
        "lake.create_table('t', [{'a': 1}])\n"
        "lake.transaction().append('t', [{'a': 2}])\n"
        "lake.transaction().read('t')\n"
    )
    stderr = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    ).stderr
    assert stderr.count("was dropped and neither committed nor aborted") == 1
    assert "(1 operation) is lost; commit it" in stderr


def test_an_ended_or_saved_transaction_without_references_causes_no_warning(lake: lv.Lake) -> None:
    def committed() -> None:
        txn = lake.transaction()
        txn.append("sales/orders", [{"id": 9, "city": "Ulm"}])
        txn.commit()

    def aborted() -> None:
        txn = lake.transaction()
        txn.append("sales/orders", [{"id": 9, "city": "Ulm"}])
        txn.abort()

    def left() -> None:
        with lake.transaction() as txn:
            txn.delete("sales/orders", "id = 9")

    def raised() -> None:
        with pytest.raises(ZeroDivisionError), lake.transaction() as txn:
            txn.delete("sales/orders", "true")
            raise ZeroDivisionError

    def saved() -> None:
        txn = lake.transaction()
        txn.delete("sales/orders", "id = 8")
        txn.save()

    def run_again() -> None:
        tries: list[int] = []

        def body(txn: lv.Transaction) -> None:
            txn.read("sales/orders")
            if not tries:
                tries.append(1)
                with lake.transaction() as other:
                    other.update("sales/orders", {"id": "id + 1"}, where="true")
            txn.append("sales/orders", [{"id": 1, "city": "Ulm"}])

        lake.run(body)
        assert tries

    def looked() -> None:
        lake.snapshot().read("sales/orders")
        lake.transaction(read_only=True).read("sales/orders")
        lake.transaction()

    for begin in (committed, aborted, left, raised, saved, run_again, looked):
        assert dropped(begin) == [], begin.__name__

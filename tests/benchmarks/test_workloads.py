"""Run each workload in its smallest size, and its check with a library that is broken
on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from bench.harness.clients import Counts
from bench.harness.parameters import WrongParameter
from bench.harness.results import Result
from bench.harness.running import execute
from bench.registry import benchmark
from bench.ycsb_lh.journal import NOT_FOUND, Journal, NotFound, broken
from bench.ycsb_lh.records import rows
from bench.ycsb_lh.systems import system
from bench.ycsb_lh.workload import Inserted, Operation

TABLE = "usertable"

SMALL = {
    "ycsb_lh": {"workloads": "A", "clients": "2", "records": "20", "operations": "4"},
    "banking": {"operations": "6", "clients": "2", "levels": "serializable", "tables": "2"},
    "tables_per_txn": {"tables": "1,2", "systems": "R|I,deltalake", "repeats": "1"},
    "freshness": {"runs": "2", "wait": "published"},
    "contention": {"overlap": "half", "tables": "2", "operations": "4", "records": "20"},
    "scale": {"files": "3", "tables": "3", "commits": "no", "clients": "2", "repeats": "1"},
}


def run(name: str, directory: Path) -> Result:
    return execute(
        benchmark(name), directory, given=SMALL[name], seed=5, profile="local", quick=True
    )


@pytest.mark.parametrize("name", SMALL)
def test_a_workload_runs_and_is_drawn(name: str, tmp_path: Path) -> None:
    result = run(name, tmp_path)
    assert result.ok, [one.deaths for one in result.series]
    assert result.series
    assert all(one.n and one.p50_ms > 0 for one in result.series)
    for plot in benchmark(name).plots:
        assert (tmp_path / f"{name}-{plot}.svg").stat().st_size > 1000


def test_the_check_finds_lost_money(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update = lv.Transaction.update

    def forgetful(txn: Any, table: str, *args: Any, **options: Any) -> Any:
        if options["params"]["a"] < 0:
            return None  # a transfer's credit commits without its debit
        return update(txn, table, *args, **options)

    monkeypatch.setattr(lv.Transaction, "update", forgetful)
    result = run("banking", tmp_path)
    assert result.checks == {"the total is what was there and what was deposited": False}
    assert not result.ok


def test_the_check_finds_a_lost_append_to_one_of_many_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = lv.Transaction.append

    def forgetful(txn: Any, table: str, rows: Any) -> Any:
        return append(txn, table, rows) if table == "customer0" else None

    monkeypatch.setattr(lv.Transaction, "append", forgetful)
    result = run("tables_per_txn", tmp_path)
    assert result.checks == {"each table has each write once": False}


def test_the_check_finds_a_row_that_is_stored_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = lv.Transaction.append

    def twice(txn: Any, table: str, rows: Any) -> Any:
        return append(txn, table, pa.concat_tables([rows, rows]))

    monkeypatch.setattr(lv.Transaction, "append", twice)
    result = run("freshness", tmp_path)
    assert result.checks == {"the reader has each row, once": False}


def test_clients_share_all_operations_even_if_their_number_does_not_divide_by_the_clients(
    tmp_path: Path,
) -> None:
    given = {**SMALL["banking"], "clients": "4"}
    made = execute(benchmark("banking"), tmp_path, given=given, seed=5, profile="local", quick=True)
    assert [one.n for one in made.series] == [6]


@pytest.mark.parametrize("name", ["banking", "ycsb_lh"])
@pytest.mark.night
def test_clients_are_processes_if_requested(name: str, tmp_path: Path) -> None:
    given = {**SMALL[name], "clients_as": "processes"}
    if name == "ycsb_lh":
        given |= {"workloads": "custom1", "systems": "bundled:R|I", "operations": "8"}
    result = execute(benchmark(name), tmp_path, given=given, seed=5, profile="local", quick=True)
    assert result.ok, (result.checks, [one.deaths for one in result.series])
    assert result.checks


@pytest.mark.night
def test_the_check_finds_a_lost_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = lv.Transaction.append

    def forgetful(txn: Any, table: str, rows: Any) -> Any:
        return append(txn, table, rows.slice(1))

    monkeypatch.setattr(lv.Transaction, "append", forgetful)
    result = run("scale", tmp_path)
    assert result.checks == {"each row that was appended is there, once": False}


def test_the_check_finds_lost_updates_of_one_of_many_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library acknowledges updates of all tables but the first one, and does not
    perform them.
    """
    update = lv.Transaction.update

    def forgetful(txn: Any, table: str, *args: Any, **options: Any) -> Any:
        return update(txn, table, *args, **options) if table == "usertable0" else None

    monkeypatch.setattr(lv.Transaction, "update", forgetful)
    given = {"overlap": "full", "tables": "2", "clients": "2", "systems": "single:R|I"}
    given |= {"records": "5", "operations": "12"}
    result = execute(
        benchmark("contention"), tmp_path, given=given, seed=5, profile="local", quick=True
    )
    assert not result.checks["each field has the last value that was acknowledged"]
    assert result.checks["each read finds its record"]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("contention", {"overlap": "third"}, "overlap: 'third' is none of full, half, none"),
        ("contention", {"tables": "5"}, "32 clients can't be spread evenly over 5"),
        ("contention", {"clients_as": "lakes"}, "its clients can't be lakes, only threads"),
        (
            "freshness",
            {"wait": "published,zzz", "peers": "", "runs": "1"},
            "wait: 'zzz' is none of published, decided",
        ),
        (
            "freshness",
            {"peers": "zzz", "runs": "1"},
            "peers: 'zzz' is none of Spark+Delta, Spark+Iceberg",
        ),
        ("scale", {"files": "1000000000"}, "a lake of 1,000,000,000 files takes"),
        ("banking", {"accounts": "1000000000"}, "200 operations on 1000000000 accounts takes"),
        ("scale", {"systems": "spark"}, "systems: 'spark' is none of NONE, R, R|I"),
        ("scale", {"tables": "0"}, "'0' has to be a list of whole numbers from 1 on"),
    ],
)
def test_parameters_that_a_workload_does_not_support_are_refused_before_it_starts(
    name: str, given: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(WrongParameter) as caught:
        execute(benchmark(name), tmp_path, given=given, seed=1)
    assert message in str(caught.value)
    assert not (tmp_path / "result.json").exists(), "nothing was measured"


def ycsb(directory: Path, **given: str) -> Result:
    small = {"clients": "1", "records": "3", "operations": "6", "warm_up": "1"}
    small |= {"systems": "single:R|I"}
    return execute(
        benchmark("ycsb_lh"), directory, given={**small, **given}, seed=5, profile="local"
    )


@pytest.mark.parametrize(
    ("workload", "system"),
    [
        ("F", "single:R|I"),
        ("F", "bundled:R|I:snapshot"),
        ("F", "deltalake"),
        ("F", "DuckLake"),
        ("custom1", "bundled:R|I"),
        ("E", "single:NONE"),
        ("E", "deltalake"),
    ],
)
def test_ycsb_finds_all_acknowledged_writes(workload: str, system: str, tmp_path: Path) -> None:
    result = ycsb(
        tmp_path, workloads=workload, systems=system, clients="3", operations="12", repeats="1"
    )
    assert result.ok, (result.checks, [one.deaths for one in result.series])
    assert len(result.checks) == 5


@pytest.mark.parametrize(
    ("workload", "verb", "check"),
    [
        ("custom2", "append", "each acknowledged insert is there, once"),
        ("A", "update", "each field has the last value that was acknowledged"),
    ],
)
def test_the_check_finds_a_lost_write(
    workload: str, verb: str, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library acknowledges every write but the first, and does not perform it."""
    whole = getattr(lv.Transaction, verb)
    calls = 0

    def forgetful(txn: Any, table: str, *args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return None if calls > 1 else whole(txn, table, *args, **options)

    monkeypatch.setattr(lv.Transaction, verb, forgetful)
    result = ycsb(tmp_path, workloads=workload, repeats="1")
    assert not result.checks[check]
    assert not result.ok


def test_the_check_finds_a_lost_read_modify_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library returns an outdated state, so the client overwrites what was committed since."""
    whole, first = lv.Transaction.read, {}

    def stale(txn: Any, table: str, **options: Any) -> Any:
        key = options["params"]["k"]
        return first.setdefault(key, whole(txn, table, **options))

    monkeypatch.setattr(lv.Transaction, "read", stale)
    result = ycsb(tmp_path, workloads="F", records="1", operations="40", repeats="1")
    assert [name for name, holds in result.checks.items() if not holds] == [
        "no read-modify-write is lost"
    ]


def test_a_transaction_that_is_rerun_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, raised = lv.Transaction.update, []

    def loses_once(txn: Any, *args: Any, **options: Any) -> Any:
        if not raised:
            raised.append(True)
            raise lv.ConflictError("another was faster")
        return update(txn, *args, **options)

    monkeypatch.setattr(lv.Transaction, "update", loses_once)
    result = ycsb(tmp_path, workloads="A", systems="bundled:R|I", warm_up="0", repeats="1")
    (series,) = result.series
    assert (series.n, series.aborts) == (6, 1)
    assert result.ok


@pytest.mark.parametrize("lost", ["another record", "another field", "a record twice"])
def test_the_check_finds_changes_to_values_that_no_operation_wrote(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library changes more than the operation requested."""
    whole = lv.Transaction.update

    def spills(txn: Any, table: str, change: Any, *, where: str, params: Any) -> Any:
        match lost:
            case "another record":
                where = f"{where} OR TRUE"
            case "another field":
                change = dict.fromkeys([f"field{n}" for n in range(10)], ":v")
            case _:
                txn.append(table, txn.read(table, where=where, params={"k": params["k"]}))
        return whole(txn, table, change, where=where, params=params)

    monkeypatch.setattr(lv.Transaction, "update", spills)
    result = ycsb(tmp_path, workloads="A", operations="3", warm_up="0", repeats="1")
    assert not result.checks["what nobody wrote is as it was, and each record is there once"]
    assert not result.ok


@pytest.mark.parametrize("other_first", [True, False])
def test_a_bundled_client_may_miss_a_record_that_was_inserted_after_its_transaction_began(
    other_first: bool, tmp_path: Path
) -> None:
    """The client chooses a record that another one has inserted since its own transaction began."""
    made = system("bundled:R|I", str(tmp_path), {})
    made.create([TABLE], rows(0, 3, Random(1)))
    inserted, facts = Inserted(3), list[object]()

    def client(number: int, todo: Iterator[Operation]) -> None:
        journal = Journal(TABLE, number, Counts(facts=facts), inserted)
        with made.open() as opened:
            list(made.work(opened, TABLE, todo, journal))

    def other() -> None:
        client(1, iter([Operation("insert", inserted.draw())]))

    def reading() -> Iterator[Operation]:
        yield Operation("read", 0)
        if not other_first:
            other()
        yield Operation("read", 3)

    if other_first:
        other()
    client(0, reading())
    missed = [one for one in facts if isinstance(one, NotFound)]
    assert len(missed) == (0 if other_first else 1)
    assert not broken(facts, TABLE, {3: [[""] * 10]}, {})[NOT_FOUND]
    late = [replace(one, began=one.began + 60) for one in missed]
    assert broken([*facts, *late], TABLE, {3: [[""] * 10]}, {})[NOT_FOUND] is bool(missed)


def test_the_check_finds_a_read_that_misses_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = lv.Transaction.read
    monkeypatch.setattr(lv.Transaction, "read", lambda *a, **o: whole(*a, **o).slice(1))
    result = ycsb(tmp_path, workloads="C", repeats="1")
    assert not result.checks["each read finds its record"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workloads": "G"}, "workloads: 'G' is none of A, B"),
        ({"systems": "spark"}, "systems: 'spark' is none: single:F"),
        ({"systems": "bundled:NONE"}, "NONE is one write a transaction"),
        ({"clients_as": "forks"}, "clients_as: 'forks' is none of threads, lakes, processes"),
        ({"apart": "2"}, "apart: '2' is neither 'no' nor a number from 0 to 1"),
        ({"clients": "0"}, "'0' has to be a list of whole numbers from 1 on"),
        ({"records": "1000000000"}, "of memory are available"),
        ({"clients_as": "processes", "clients": "100000"}, "100000 client processes"),
    ],
)
def test_parameters_that_ycsb_does_not_support_are_refused_before_it_starts(
    given: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(WrongParameter) as caught:
        execute(benchmark("ycsb_lh"), tmp_path, given=given, seed=1, profile="s3")
    assert message in str(caught.value)


def test_a_client_that_dies_is_listed_in_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(txn: Any, *args: Any, **options: Any) -> Any:
        raise lv.StoreError("the store is away")

    monkeypatch.setattr(lv.Transaction, "read", fails)
    result = run("ycsb_lh", tmp_path)
    dead = [one for one in result.series if one.deaths]
    assert dead
    assert "the store is away" in dead[0].deaths[0]
    assert not result.ok


def test_requests_are_refused_for_a_lake_in_a_directory(tmp_path: Path) -> None:
    with pytest.raises(WrongParameter, match="--profile zero"):
        execute(benchmark("requests"), tmp_path, given={}, seed=1, profile="local")

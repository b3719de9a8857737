"""Test peers of the benchmark: what they can do, the report on peers that are not installed, and
the count of rows.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from bench import requests
from bench.harness.benchmark import NotInstalled
from bench.harness.parameters import WrongParameter
from bench.harness.peers import PEERS, peer
from bench.harness.peers.pyiceberg import PyIceberg
from bench.harness.results import Result
from bench.harness.running import execute
from bench.harness.store.latency_proxy import is_of_rows
from bench.harness.store.places import places
from bench.registry import benchmark
from tests.support.search import WHOLE

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "value": [1.0, 2.0, 3.0]})


@pytest.mark.parametrize("name", ["deltalake", "pyiceberg", "DuckLake"])
def test_a_peer_appends_reads_and_updates(name: str) -> None:
    with places("local") as made:
        found = peer(name, made)
        found.create(["a", "b"], ROWS)
        found.append(["a", "b"], ROWS.slice(1, 1))
        found.update("a", {"value": "value * 10"}, "id = 2")
        assert sorted(found.read("a")["value"].to_pylist()) == [1.0, 3.0, 20.0, 20.0]
        assert found.read("b", "id = 2").to_pylist() == 2 * [{"id": 2, "value": 2.0}]
        found.close()


def test_an_unknown_peer_is_refused_with_the_names_of_the_known_ones() -> None:
    with places("local") as made, pytest.raises(WrongParameter, match=r"'Hudi' is none of delta"):
        peer("Hudi", made)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_that_is_not_installed_is_reported_with_its_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name}", name=name.lower())

    monkeypatch.setattr("bench.harness.peers.import_module", missing)
    with places("local") as made, pytest.raises(NotInstalled, match=r"pip install 'lakevilla\["):
        peer(name, made)


def test_spark_without_java_is_reported_as_left_out_and_the_other_systems_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    given = {"systems": "Spark+Delta,R|I", "anomalies": "P4"}
    result = execute(benchmark("hermitage"), tmp_path, given=given, seed=1)
    assert [one.system for one in result.series] == ["R|I"]
    assert "Spark+Delta was left out: Spark needs Java 17" in result.notes[0]


def test_an_object_kept_for_a_run_is_made_once_and_ended_with_the_run() -> None:
    ended: list[str] = []
    with places("local") as made:
        for _ in range(2):
            assert made.kept("session", lambda: "it", ended.append) == "it"
        assert ended == []
    assert ended == ["it"]


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        ("/lake/0001-R/a/part-0.parquet", True),
        ("/lake/0001-R/t/data/00000-0.parquet", True),
        ("/lake/0001-R/a/_delta_log/00000000000000000010.checkpoint.parquet", False),
        ("/lake/0001-R/a/_delta_log/00000000000000000010.json", False),
        ("/lake/0001-R/_lakevilla/HEAD.json", False),
        ("/lake/0001-R/t/metadata/snap-1.avro", False),
        ("/lake", False),
    ],
)
def test_all_objects_but_files_of_rows_count_as_metadata(path: str, rows: bool) -> None:
    assert is_of_rows(path) is rows


# -- requests ------------------------------------------------------------------------


def counted(directory: Path, **given: str) -> Result:
    systems = "R,R|I,R|CT" if WHOLE else "R,R|I"
    small = {"systems": systems, "kinds": "append,update", "tables": "1,2"}
    small |= {"transactions": "1"}
    return execute(benchmark("requests"), directory, given={**small, **given}, seed=1)


def test_requests_of_lakevilla_are_as_promised_and_are_drawn(tmp_path: Path) -> None:
    result = counted(tmp_path)
    assert result.checks == {"LakeVilla's requests for metadata are those that it promises": True}
    one = result.find("R|I", kind="append", tables=2)
    assert one is not None
    assert (one.metadata["put"], one.requests["put"]) == (4, 6), "two of them are files of rows"
    assert result.find("R", tables=2) is None, "its transactions are of one table"
    for plot in ("by-verb", "by-tables"):
        assert (tmp_path / f"requests-{plot}.svg").stat().st_size > 1000


def test_the_check_finds_one_request_more_than_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = lv.Transaction.append

    def wasteful(txn: Any, table: str, *args: Any, **options: Any) -> Any:
        txn.read(table, where="id = -1")  # an additional read of the table that it appends to
        return append(txn, table, *args, **options)

    monkeypatch.setattr(lv.Transaction, "append", wasteful)
    result = counted(tmp_path, systems="R|I", kinds="append", tables="2")
    assert not result.ok
    assert result.notes == ["R|I, append, 2 tables: 5 get 4 put, promised 3 get 4 put"]


def test_only_lakevilla_promises_numbers_of_requests() -> None:
    assert requests.promised("deltalake", "append", 1) is None
    assert requests.promised("R|CT|I", "append", 8) == {"get": 9, "put": 10, "list": 8}
    assert requests.promised("R|CT|I", "update", 8) == {
        "get": 24,
        "put": 19,
        "list": 16,
        "delete": 9,
    }


# -- hermitage -----------------------------------------------------------------------


def tried(directory: Path) -> Result:
    given = {"systems": "R|I,R|I snapshot", "anomalies": "P4,G2-MT"}
    return execute(benchmark("hermitage"), directory, given=given, seed=1)


@pytest.mark.usefixtures("pictures")
def test_hermitage_shows_the_anomalies_that_a_level_allows(tmp_path: Path) -> None:
    result = tried(tmp_path)
    assert result.ok
    assert {(one.system, one.params["anomaly"]): one.params["seen"] for one in result.series} == {
        ("R|I", "P4"): "no",
        ("R|I", "G2-MT"): "no",
        ("R|I snapshot", "P4"): "no",
        ("R|I snapshot", "G2-MT"): "yes",
    }
    assert (tmp_path / "hermitage-table.svg").stat().st_size > 1000


def test_hermitage_finds_an_anomaly_that_a_level_excludes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = lv.Lake.transaction

    def lenient(lake: Any, *args: Any, **options: Any) -> Any:
        return begin(lake, *args, **{**options, "isolation": "snapshot"})

    monkeypatch.setattr(lv.Lake, "transaction", lenient)
    result = tried(tmp_path)
    name = "R|I lets nothing through that its level does not allow"
    assert result.checks[name] is False


# -- ycsb_lh -------------------------------------------------------------------------


def ycsb(directory: Path, **given: str) -> Result:
    small = {"workloads": "F,custom1", "clients": "2", "records": "10", "operations": "6"}
    small |= {"systems": "pyiceberg", "warm_up": "0", "repeats": "1"}
    return execute(
        benchmark("ycsb_lh"), directory, given={**small, **given}, seed=1, profile="local"
    )


@pytest.mark.night
def test_a_peer_performs_all_operations_of_ycsb(tmp_path: Path) -> None:
    result = ycsb(tmp_path)
    assert result.ok, (result.checks, [one.deaths for one in result.series])
    assert [one.n for one in result.series] == [6, 6]


def test_the_check_finds_an_update_that_a_peer_acknowledges_and_does_not_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PyIceberg, "update", lambda *given: None)
    result = ycsb(tmp_path, workloads="A", clients="1")
    assert result.checks["each field has the last value that was acknowledged"] is False


def test_a_peer_whose_clients_are_to_be_processes_is_left_out(tmp_path: Path) -> None:
    result = ycsb(tmp_path, clients_as="processes")
    assert result.notes == ["pyiceberg was left out: its clients are threads, not processes"]

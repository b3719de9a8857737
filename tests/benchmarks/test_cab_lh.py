"""Test CAB-LH: its queries and writes, and its checks with a library that is broken on purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from bench.cab_lh.arguments import Refresh
from bench.cab_lh.queries import VALIDATED, Texts, literals
from bench.cab_lh.streams import Plan, Query, Stream, average_time, streams
from bench.cab_lh.writes import FIRST_NEW_KEY, TARGETS, Start, Write
from bench.harness.parameters import WrongParameter
from bench.harness.results import Result
from bench.harness.running import execute
from bench.harness.tpc import Tpc
from bench.registry import benchmark

SCALE = 0.001
SEED = 8
ANSWERS = "each query answers as DuckDB does from the same rows"
TABLES = "each table holds what the acknowledged writes make of it"
ORDERS = "query 23 moves each order once, at the price of its lines"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tpc]:
    with closing(Tpc("tpch", SCALE, tmp_path_factory.mktemp("tpch") / "tpch.duckdb")) as tpc:
        yield tpc


@pytest.mark.parametrize("number", VALIDATED)
def test_a_query_with_the_arguments_of_the_validation_run_is_tpc_h_s(
    number: int, made: Tpc
) -> None:
    generated = " ".join(made.query(number).split())
    assert all(literal in generated for literal in literals(number, VALIDATED[number]))
    assert Texts(made).text(Query(number, 0, VALIDATED[number])) == generated


def test_every_query_runs_with_random_arguments_and_uses_all_of_them(made: Tpc) -> None:
    texts = Texts(made)
    plan = Plan(SCALE, budget=400 * average_time(SCALE), duration_ms=60_000)
    drawn = {query.number: query for one in streams(2, plan) for query in one.queries}
    assert set(drawn) == set(VALIDATED)
    for number, query in drawn.items():
        text = texts.text(query)
        assert all(literal in text for literal in literals(number, query.arguments))
        made.answer(text)


def writes(made: Tpc, streams: list[Stream]) -> list[Write]:
    start, refresh = Start(made), Refresh(SCALE)
    return [one for stream in streams for one in start.writes(stream, refresh, Random(4))]


def test_writes_are_inserts_updates_and_the_23rd_query_in_their_shares(made: Tpc) -> None:
    plan = Plan(SCALE, 1500 * average_time(SCALE), 60_000, read_only=False)
    found = writes(made, streams(1, plan))
    kinds = Counter(one.kind for one in found)
    others = kinds["insert"] + kinds["update"]
    # At most five standard deviations.
    assert abs(kinds["refresh"] / len(found) - 1 / 23) < 0.03
    assert abs(kinds["insert"] / others - 0.8) < 0.06
    inserts = [one for one in found if one.kind == "insert"]
    assert {one.table for one in inserts} == set(TARGETS)
    assert all(1 <= one.more_rows <= 100 for one in inserts)
    keys = [key for one in inserts for key in one.rows[TARGETS[one.table].key].to_pylist()]
    assert len(keys) == len(set(keys)), "no two new rows have one key"
    assert min(keys) >= FIRST_NEW_KEY


def test_an_update_states_the_number_of_rows_that_it_changes(made: Tpc) -> None:
    plan = Plan(SCALE, 200 * average_time(SCALE), 60_000, read_only=False)
    updates = [one for one in writes(made, streams(1, plan)) if one.kind == "update"]
    assert {one.table for one in updates} == set(TARGETS) - {"nation", "region"}
    for one in updates:
        key, (first, behind) = TARGETS[one.table].key, one.keys
        sql = f"SELECT count(*) FROM {one.table} WHERE {key} >= {first} AND {key} < {behind}"
        assert made.answer(sql)[0][0].as_py() == one.more
        assert one.more or one.keys[0] == 0


def test_streams_that_share_a_lake_never_move_the_same_orders(made: Tpc) -> None:
    plan = Plan(SCALE, 300 * average_time(SCALE), 60_000, read_only=False)
    moves = [one.keys for one in writes(made, streams(4, plan)) if one.kind == "refresh"]
    assert len(moves) > 30
    assert len(set(moves)) == len(moves)


def run(directory: Path, **given: str) -> Result:
    """Run one write stream of 12 writes; with this seed the ninth is query 23."""
    small = {"scale": str(SCALE), "features": "R|I", "modes": "concurrent", "readers": "0"}
    small |= {"writers": "1", "seconds": "0.1", "slots": "1", "writes": "8"}
    given = {**small, **given}
    return execute(
        benchmark("cab_lh"), directory, given=given, seed=SEED, profile="local", quick=True
    )


@pytest.mark.night
def test_all_phases_run_and_are_drawn(tmp_path: Path) -> None:
    given = {"features": "NONE,R|CT", "modes": "serial,concurrent", "reads": "2"}
    given |= {"readers": "2", "writers": "2", "writes": "2"}
    result = run(tmp_path, **given)
    assert result.checks == {ANSWERS: True, TABLES: True, ORDERS: True}
    assert result.ok
    assert len(result.series) == 2 * 2 * 2
    assert all(one.n and one.p50_ms > 0 for one in result.series)
    assert all(one.phases_ms[f"{one.params['kind']}/data"] > 0 for one in result.series)
    for plot in benchmark("cab_lh").plots:
        assert (tmp_path / f"cab_lh-{plot}.svg").stat().st_size > 1000


@pytest.mark.night
def test_the_check_finds_a_row_that_a_query_misses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = lv.Transaction.sql

    def short(txn: Any, query: str, *args: Any, **options: Any) -> Any:
        found = sql(txn, query, *args, **options)
        return found.slice(1) if isinstance(found, pa.Table) else found

    monkeypatch.setattr(lv.Transaction, "sql", short)
    assert run(tmp_path, writes="1").checks[ANSWERS] is False


@pytest.mark.parametrize("verb", ["append", "update", "delete"])
def test_the_check_finds_a_lost_write(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verb is acknowledged and does nothing; after a lost delete both tables have the moved
    orders.
    """
    monkeypatch.setattr(lv.Transaction, verb, lambda txn, *args, **options: None)
    result = run(tmp_path)
    assert result.checks == {ANSWERS: True, TABLES: False, ORDERS: verb != "delete"}
    assert not result.ok


@pytest.mark.night
def test_the_check_finds_an_order_that_is_deleted_and_not_inserted_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = lv.Transaction.sql

    def torn(txn: Any, query: str, *args: Any, **options: Any) -> Any:
        return None if query.startswith("INSERT") else sql(txn, query, *args, **options)

    monkeypatch.setattr(lv.Transaction, "sql", torn)
    result = run(tmp_path)
    assert result.checks == {ANSWERS: True, TABLES: False, ORDERS: False}


@pytest.mark.night
def test_a_run_with_a_dead_client_names_the_client_and_concludes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(txn: Any, *args: Any, **options: Any) -> Any:
        raise lv.StoreError("the store is away")

    monkeypatch.setattr(lv.Transaction, "append", fails)
    result = run(tmp_path)
    assert "the store is away" in str([one.deaths for one in result.series])
    assert set(result.checks) == {ANSWERS}
    assert not result.ok


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"features": "R,I|R"}, "features: 'I|R' is none of NONE, R, CT, I"),
        ({"modes": "parallel"}, "modes: 'parallel' is none of serial, concurrent"),
        ({"slots": "3"}, "slots=3 does not divide 100"),
        ({"scale": "1e6"}, "tpch at scale factor 1e+06 takes"),
    ],
)
def test_wrong_parameters_are_refused(given: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(WrongParameter) as caught:
        run(tmp_path, **given)
    assert message in str(caught.value)

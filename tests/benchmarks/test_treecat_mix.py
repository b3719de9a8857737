"""Run the smallest TreeCat mix, and its checks with a broken library."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import bench.treecat_mix
import lakevilla as lv
from bench.harness.parameters import WrongParameter
from bench.harness.results import Result
from bench.harness.running import execute
from bench.registry import benchmark
from bench.treecat_mix import WEIGHTS, deck

LOST = "no insert that was acknowledged is lost"
THERE = "no insert that was aborted is there"
BEFORE = "of the rows from before, those that were deleted are gone, and no others"


def run(directory: Path, **given: str) -> Result:
    small = {"operations": "40", "clients": "4", **given}
    return execute(
        benchmark("treecat_mix"), directory, given=small, seed=5, profile="local", quick=True
    )


@pytest.mark.night
def test_both_ways_to_validate_do_the_same_work_and_are_drawn(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.checks == {LOST: True, THERE: True, BEFORE: True}
    counts = {
        (one.system, one.params["operation"]): one.n
        for one in result.series
        if one.params["operation"] != "all"
    }
    for kind in WEIGHTS:
        assert counts["precise", kind] == counts["rules", kind] > 0
    assert (tmp_path / "treecat_mix-aborts.svg").stat().st_size > 1000


def test_operations_are_drawn_with_the_weights_of_the_mix() -> None:
    kinds = deck(2 * sum(WEIGHTS.values()), Random(1))
    assert {kind: kinds.count(kind) for kind in WEIGHTS} == {
        kind: 2 * weight for kind, weight in WEIGHTS.items()
    }
    assert kinds != deck(2 * sum(WEIGHTS.values()), Random(2))


@pytest.mark.night
def test_the_rules_abort_transactions_that_a_precise_check_admits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read table with a newer version is a conflict by the rules, and none by the
    precise check.
    """
    look_up = bench.treecat_mix._look_up

    def meanwhile(txn: Any, rows: pa.Table, dimensions: Any) -> None:
        look_up(txn, rows, dimensions)
        lake = lakes[-1]
        with lake.transaction() as other:  # another row of a dimension table that was read
            other.append("item", pa.table({"id": [5_000_000], "value": pa.array([1], pa.int32())}))

    lakes: list[Any] = []
    connect = lv.connect

    def noted(*args: Any, **options: Any) -> Any:
        lakes.append(connect(*args, **options))
        return lakes[-1]

    monkeypatch.setattr(lv, "connect", noted)
    monkeypatch.setattr(bench.treecat_mix, "_look_up", meanwhile)
    result = run(tmp_path, operations="20", clients="1")
    precise, rules = (result.find(name, operation="all") for name in ("precise", "rules"))
    assert precise is not None
    assert rules is not None
    assert precise.aborts == 0
    assert rules.aborts > 10
    (one,) = result.targets
    assert (one.measured, one.met) == (0, True)


@pytest.mark.night
def test_the_check_finds_a_lost_insert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = lv.Transaction.append

    def forgetful(txn: Any, table: str, rows: pa.Table, **options: Any) -> Any:
        return append(txn, table, rows.slice(1) if rows.num_rows == 1 else rows, **options)

    monkeypatch.setattr(lv.Transaction, "append", forgetful)
    result = run(tmp_path, validations="precise")
    assert result.checks == {LOST: False, THERE: True, BEFORE: True}
    assert not result.ok


@pytest.mark.night
def test_the_check_finds_an_aborted_insert_that_took_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = lv.Transaction.__exit__

    def says_it_aborted(txn: Any, *error: Any) -> None:
        leave(txn, *error)
        if len(txn.operations) == 1:  # not one of those that make the tables
            raise lv.ConflictError("it has committed, and its client hears that it has not")

    monkeypatch.setattr(lv.Transaction, "__exit__", says_it_aborted)
    result = run(tmp_path, validations="precise")
    assert result.checks == {LOST: True, THERE: False, BEFORE: True}


def test_an_unknown_way_to_validate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongParameter, match="'none' is none of precise, rules"):
        run(tmp_path, validations="none")


def test_the_check_finds_a_lost_delete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.treecat_mix, "_DELETED_DAYS", 60)  # each deletes a row
    monkeypatch.setattr(lv.Transaction, "delete", lambda *args: None)
    assert run(tmp_path, validations="precise").checks == {LOST: True, THERE: True, BEFORE: False}


@pytest.mark.night
def test_reads_by_random_keys_cannot_be_cleared_by_the_statistics_of_new_files(
    tmp_path: Path,
) -> None:
    """A client reads a row by its key while other clients insert rows with smaller and
    larger keys.
    """
    result = run(tmp_path, operations="150", keys="random", rows="20", validations="precise")
    assert result.checks == {LOST: True, THERE: True, BEFORE: True}
    one = result.find("precise", operation="all")
    assert one is not None
    assert max(one.of_repeats("overtaken")) >= max(one.of_repeats("doubtful"))
    with pytest.raises(WrongParameter, match="keys"):
        run(tmp_path, keys="some")

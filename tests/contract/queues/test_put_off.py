"""``defer=True``: verbs are only noted, and performed together at the commit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.store.cached import Budget
from lakevilla.transaction.redo import rebase as fetch
from tests.contract.queues.test_logical_mode import VERBS, counts, impossible, put_off, rows
from tests.support.inside import executor, inside
from tests.support.places import Place, fill, make_place, skip_iceberg
from tests.support.tables import accounts, in_order
from tests.support.traces import steps

R, CT, I = lv.Feature.R, lv.Feature.CT, lv.Feature.I  # noqa: E741 - the paper's name
FEATURES = pytest.mark.parametrize("features", [R | I, R | CT, R | CT | I], ids=str)


@pytest.fixture
def lake(quick_place: Place) -> Iterator[lv.Lake]:
    fill(quick_place, {"bank": accounts(4), "news": [{"id": 2, "balance": 7}]})
    with quick_place.connect() as lake:
        yield lake


@FEATURES
@pytest.mark.parametrize("verb", VERBS)
def test_a_deferred_verb_has_the_same_effect_as_an_immediate_one(
    lake: lv.Lake, verb: str, features: lv.Feature
) -> None:
    at_once = lake.transaction()
    expected = VERBS[verb](at_once)
    expected_counts, expected_rows = counts(expected), in_order(at_once.read("bank"))
    at_once.abort()
    with lake.transaction(features, defer=True) as txn:
        result = VERBS[verb](txn)
        assert len(put_off(txn)) == 1
    assert rows(lake) == expected_rows
    assert counts(result) == expected_counts


@FEATURES
@pytest.mark.parametrize("verb", VERBS)
def test_a_deferred_verb_is_performed_when_its_row_counts_are_read(
    lake: lv.Lake, verb: str, features: lv.Feature
) -> None:
    with lake.transaction(features, defer=True) as txn:
        result = VERBS[verb](txn)
        seen = counts(result)
        assert put_off(txn) == []
    assert sum(seen) > 0
    assert counts(result) == seen


@FEATURES
def test_a_read_performs_deferred_verbs_first(lake: lv.Lake, features: lv.Feature) -> None:
    with lake.transaction(features, defer=True) as txn:
        txn.update("bank", {"balance": "balance + 1"}, where="id = 0")
        txn.delete("bank", where="balance = 101")
        txn.sql("INSERT INTO news SELECT id, balance FROM bank WHERE id = 1")
        assert len(put_off(txn)) == 3
        assert in_order(txn.read("bank", where="id < 2")) == [{"id": 1, "balance": 100}]
        assert put_off(txn) == []
        txn.update("bank", {"balance": "0"}, where="id = 1")
    assert rows(lake) == [{"id": i, "balance": 0 if i == 1 else 100} for i in (1, 2, 3)]
    assert rows(lake, "news") == [{"id": 1, "balance": 100}, {"id": 2, "balance": 7}]


@FEATURES
def test_a_row_error_of_a_deferred_verb_is_raised_by_the_commit_which_aborts(
    lake: lv.Lake, features: lv.Feature
) -> None:
    before = rows(lake)
    txn = lake.transaction(features, defer=True)
    txn.update("bank", {"balance": "1"}, where="id = 0")
    impossible(txn)
    with pytest.raises(lv.InvalidOperation, match="update of table bank, deferred") as raised:
        txn.commit()
    assert raised.value.table == "bank"
    with pytest.raises(lv.InvalidOperation):
        txn.update("bank", {"balance": "1"}, where="id = 0")
    assert rows(lake) == before


@FEATURES
@pytest.mark.parametrize(
    "wrong",
    [
        lambda txn: txn.update("bank", {"balanc": "0"}, where="true"),
        lambda txn: txn.update("bank", {"balance": "0"}, where="nobody = 1"),
        lambda txn: txn.delete("nowhere", where="true"),
        lambda txn: txn.upsert("bank", [{"id": 1, "balance": 1}], keys="nobody"),
    ],
    ids=["assignment", "predicate", "table", "key"],
)
def test_a_column_error_of_a_deferred_verb_is_raised_by_the_verb(
    lake: lv.Lake, features: lv.Feature, wrong: Callable[[lv.Transaction], Any]
) -> None:
    with lake.transaction(features, defer=True) as txn:
        txn.update("bank", {"balance": "5"}, where="id = 0")
        with pytest.raises(lv.LakeVillaError):
            wrong(txn)
        assert len(txn.operations) == 1
    assert rows(lake)[0] == {"id": 0, "balance": 5}


@FEATURES
def test_a_deferred_verb_can_use_a_column_that_another_client_has_just_added(
    request: pytest.FixtureRequest, quick_place: Place, lake: lv.Lake, features: lv.Feature
) -> None:
    skip_iceberg(request)
    assert len(rows(lake)) == 4, "its log is known here"
    with quick_place.connect() as other, other.transaction(lv.Feature.NONE) as txn:
        txn.alter("bank", add_columns=pa.schema([("note", pa.string())]))
    with lake.transaction(features, defer=True) as txn:
        txn.update("bank", {"note": "'new'"}, where="id = 1")
        txn.delete("bank", where="note = 'old'")
    assert [row["note"] for row in rows(lake)] == [None, "new", None, None]


@FEATURES
def test_deferred_verbs_are_performed_on_the_state_of_a_commit_in_between(
    lake: lv.Lake, features: lv.Feature
) -> None:
    txn = lake.transaction(features, defer=True)
    txn.update("bank", {"balance": "balance * 2"}, where="id = 1")
    lake.run(lambda other: other.update("bank", {"balance": "balance + 1"}, where="id = 1"))
    result = txn.commit()
    assert rows(lake)[1] == {"id": 1, "balance": 202}
    assert result.retries == 0, "nothing was done twice"


def test_a_deferred_verb_takes_no_place_before_the_commit_or_take_turn(lake: lv.Lake) -> None:
    with lake.transaction(R | CT | I, defer=True) as txn:
        txn.update("bank", {"balance": "1"}, where="id = 0")
        assert executor(txn).state.claims.queue is None
        txn.take_turn("bank")
        txn.delete("bank", where="id = 3")
        assert len(put_off(txn)) == 2, "its turn is kept for the commit"
    assert [row["balance"] for row in rows(lake)] == [1, 100, 100]


# -- files in one round ---------------------------------------------------------


@pytest.fixture(autouse=True)
def files_of_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no other lake of the process have files kept in memory that were written."""
    monkeypatch.setattr("lakevilla.store.runner.FILES_OF_PROCESS", Budget())


def many(place: Place, count: int) -> lv.Lake:
    """Make tables by a client that keeps no file in memory that it has written."""
    lake = place.connect(settings=lv.Settings(cache_bytes=0))
    with lake.transaction() as txn:
        for number in range(count):
            txn.create_table(f"t{number}", pa.Table.from_pylist(accounts(3)))
    return lake


def update_all(lake: lv.Lake, count: int, **options: Any) -> Callable[[], None]:
    def once() -> None:
        with lake.transaction(**options) as txn:
            for number in range(count):
                txn.update(f"t{number}", {"balance": "balance + 1"}, where="id = 1")

    return once


@pytest.fixture
def remote(request: pytest.FixtureRequest) -> Place:
    """Return a place in memory: files of the local disk are not fetched in rounds."""
    return make_place("memory", request)


def data_rounds(found: list[list[tuple[str, str]]]) -> list[int]:
    """Return the number of GETs of data files in each round."""
    wanted = [
        sum(verb == "get" and key.endswith(".parquet") for verb, key in step) for step in found
    ]
    return [number for number in wanted if number]


@FEATURES
def test_deferred_updates_of_eight_tables_need_as_many_rounds_as_of_one(
    remote: Place, features: lv.Feature
) -> None:
    with contextlib.closing(many(remote, 8)) as lake:
        update_all(lake, 8, features=features)()
        found = {
            count: steps(lake, update_all(lake, count, features=features, defer=True))
            for count in (1, 8)
        }
        assert len(found[8]) == len(found[1])
        assert data_rounds(found[1]) == [1]
        assert data_rounds(found[8]) == [8], "each file once and as a whole, all at once"
        at_once = steps(lake, update_all(lake, 8, features=features))
        assert len(data_rounds(at_once)) >= 8
        assert rows(lake, "t7")[1]["balance"] == 103


def test_a_round_fetches_no_more_than_memory_allows(
    remote: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(many(remote, 5)) as lake:
        update_all(lake, 5)()
        held: list[int] = []
        holding = type(inside(lake).engine).holding

        def counted(engine: Any, bodies: Any) -> Any:
            held.append(sum(map(len, bodies.values())))
            return holding(engine, bodies)

        monkeypatch.setattr(type(inside(lake).engine), "holding", counted)
        update_all(lake, 1, defer=True)()
        size = held.pop()
        monkeypatch.setattr(fetch, "ROUND_BYTES", 2 * size + size // 2)
        found = steps(lake, update_all(lake, 5, defer=True))
        assert data_rounds(found) == [2, 2, 1]
        assert len(held) == 3
        assert max(held) <= fetch.ROUND_BYTES
        monkeypatch.setattr(fetch, "FILE_BYTES", 1)
        found = steps(lake, update_all(lake, 5, defer=True))
        assert data_rounds(found) == [1] * 5, "a large one is left to the engine"
        assert rows(lake, "t4")[1]["balance"] == 103


def test_several_deferred_verbs_on_one_table_build_on_each_other(remote: Place) -> None:
    with contextlib.closing(many(remote, 2)) as lake:
        with lake.transaction(defer=True) as txn:
            for _ in range(3):
                for table in ("t0", "t1"):
                    txn.update(table, {"balance": "balance * 2"}, where="id = 1")
            txn.delete("t0", where="balance < 500")
        assert rows(lake, "t0") == [{"id": 1, "balance": 800}]
        assert [row["balance"] for row in rows(lake, "t1")] == [100, 800, 100]


def test_fetched_files_are_released_after_their_use(remote: Place) -> None:
    with contextlib.closing(many(remote, 3)) as lake:
        update_all(lake, 3, defer=True)()
        with lake.transaction(defer=True) as txn:
            done = txn.update("t0", {"balance": "id * 9223372036854775807"}, where="id >= 2")
            with pytest.raises(lv.InvalidOperation):
                assert done.rows_updated
            txn.abort()
        assert inside(lake).engine._data._held == {}

"""Transactions that commit by a log entry alone to tables dropped meanwhile (note 50)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.clock import SystemClock
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.tables import values
from tests.support.traces import cost

#: Longer than the time after which such a transaction reads HEAD again.
SOON = 11.0
BY_ENTRY = [lv.Feature.NONE, lv.Feature.R]


class Clock(SystemClock):
    ahead_seconds = 0.0

    def elapsed(self) -> float:
        return super().elapsed() + self.ahead_seconds


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array(ids, pa.int64())})


VERBS: dict[str, Callable[[lv.Transaction], object]] = {
    "append": lambda txn: txn.append("t", rows(9)),
    "overwrite": lambda txn: txn.overwrite("t", rows(9)),
    "update": lambda txn: txn.update("t", {"n": "n + 1"}, where="id = 1"),
    "delete": lambda txn: txn.delete("t", where="id = 1"),
    "merge": lambda txn: txn.sql(
        "MERGE INTO t USING (SELECT 9 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    ),
    "alter": lambda txn: txn.alter("t", set_properties={"mine": "1"}),
    "insert": lambda txn: txn.sql("INSERT INTO t SELECT id, n FROM t"),
    "read": lambda txn: txn.read("t"),
    "sql": lambda txn: txn.sql("SELECT count(*) FROM t"),
}


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, place: Place) -> Iterator[lv.Lake]:
    with place.connect() as lake:
        lake.create_table("t", rows(1, 2), format=request.param)
        yield lake


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def other(place: Place, lake: lv.Lake, clock: Clock) -> Iterator[lv.Lake]:
    """Return a client that has cached the table and HEAD."""
    with place.connect() as other:
        inside(other).clock = clock
        other.run(lambda txn: txn.append("t", rows(3)), features=lv.Feature.NONE)
        yield other


def log_of(place: Place) -> list[str]:
    found = [*Path(place.root, "t").glob("_delta_log/*.json"), *Path(place.root).glob("t/*/v*")]
    return sorted(path.name for path in found)


@pytest.mark.parametrize("who", ["the client that dropped it", "another", "a new one"])
def test_an_append_to_a_dropped_table_is_refused(
    place: Place, lake: lv.Lake, other: lv.Lake, clock: Clock, who: str
) -> None:
    lake.drop_table("t")
    clock.ahead_seconds += SOON
    before = log_of(place)
    client = {"another": other, "a new one": place.connect()}.get(who, lake)
    for number, verb in enumerate(VERBS.values()):
        features = BY_ENTRY[number % 2]
        clock.ahead_seconds += SOON
        with pytest.raises((lv.TableNotFound, lv.ConflictError), match="t was dropped from this"):
            with client.transaction(features) as txn:
                verb(txn)
        with pytest.raises(
            lv.TableNotFound, match="t does not exist: it was dropped from this lake; `register`"
        ):
            client.run(verb, features=features)
    assert log_of(place) == before
    lake.register("t")
    for verb in VERBS.values():
        client.run(verb, features=lv.Feature.NONE)


@pytest.mark.parametrize("features", BY_ENTRY)
def test_an_append_to_a_table_whose_data_was_deleted_is_refused(
    place: Place, lake: lv.Lake, other: lv.Lake, clock: Clock, features: lv.Feature
) -> None:
    lake.drop_table("t", delete_data=True)
    clock.ahead_seconds += SOON
    with pytest.raises(lv.TableNotFound, match="table t"):
        other.run(lambda txn: txn.append("t", rows(9)), features=features)
    assert log_of(place) == []


def test_a_commit_to_a_table_dropped_meanwhile_is_a_conflict(
    place: Place, lake: lv.Lake, other: lv.Lake, clock: Clock
) -> None:
    for delete_data in (False, True):
        txn = other.transaction(lv.Feature.R)
        txn.append("t", rows(9))
        lake.drop_table("t", delete_data=delete_data)
        before = log_of(place)
        clock.ahead_seconds += SOON
        with pytest.raises(lv.ConflictError, match=r"table t\b"):
            txn.commit()
        assert log_of(place) == before
        if not delete_data:
            lake.register("t")


def test_a_client_that_writes_repeatedly_to_a_dropped_table_is_soon_refused(
    place: Place, lake: lv.Lake, other: lv.Lake, clock: Clock
) -> None:
    """The client's own log entries do not count as a sign that the table exists."""
    written = 0

    def write_on() -> None:
        nonlocal written
        with pytest.raises((lv.ConflictError, lv.TableNotFound)):
            for _ in range(100):
                clock.ahead_seconds += 1.0
                with other.transaction(lv.Feature.NONE) as txn:
                    txn.append("t", rows(9))
                written += 1

    lake.drop_table("t", delete_data=True)
    write_on()
    assert written <= SOON


def test_rows_written_to_the_log_of_a_dropped_table_show_once_it_is_registered(
    lake: lv.Lake, other: lv.Lake
) -> None:
    """The writer has read HEAD right before the drop, so it does not notice it."""
    lake.drop_table("t")
    other.run(lambda txn: txn.append("t", rows(9)), features=lv.Feature.NONE)
    lake.register("t")
    assert values(lake.read("t")) == [1, 2, 3, 9]
    assert lake.doctor().ok


def test_head_is_read_again_only_after_some_time_and_by_one_get(
    lake: lv.Lake, other: lv.Lake, clock: Clock
) -> None:
    def append() -> None:
        other.run(lambda txn: txn.append("t", rows(9)), features=lv.Feature.NONE)

    append()
    usual = cost(other, append)
    clock.ahead_seconds += SOON
    then = cost(other, append)
    assert (then.put, then.get, then.list) == (usual.put, usual.get + 1, usual.list)
    assert cost(other, append) == usual


def test_a_client_that_has_cached_a_drop_reads_head_again_before_it_refuses(
    lake: lv.Lake, other: lv.Lake, clock: Clock
) -> None:
    lake.drop_table("t")
    clock.ahead_seconds += SOON
    with pytest.raises(lv.TableNotFound):
        other.run(lambda txn: txn.read("t"), features=lv.Feature.NONE)
    lake.register("t")
    other.run(lambda txn: txn.append("t", rows(9)), features=lv.Feature.NONE)
    assert values(lake.read("t")) == [1, 2, 3, 9]


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R | lv.Feature.I], ids=str)
def test_a_deleted_log_fails_the_next_writes_to_the_table(
    place: Place, other: lv.Lake, clock: Clock, features: lv.Feature
) -> None:
    """A foreign client deletes the directory; by HEAD the table still exists."""
    other.run(lambda txn: txn.append("t", rows(8)), features=lv.Feature.R | lv.Feature.I)
    shutil.rmtree(Path(place.root, "t"))
    errors = (lv.TableNotFound, lv.ConflictError, lv.CorruptObject, lv.ForeignConflict)
    with pytest.raises(errors):
        for _ in range(400):
            clock.ahead_seconds += 60
            other.run(lambda txn: txn.append("t", rows(9)), features=features)
            assert clock.ahead_seconds < 400


#: Verbs whose effect only HEAD records, and the lake's tables after each.
OF_HEAD: dict[str, tuple[Callable[[lv.Transaction], object], list[str]]] = {
    "drop": (lambda txn: txn.drop_table("t"), []),
    "rename": (lambda txn: txn.rename_table("t", "u"), ["u"]),
    "create": (lambda txn: txn.create_table("u", rows().schema), ["t", "u"]),
}


@pytest.mark.parametrize("features", BY_ENTRY)
@pytest.mark.parametrize("verb", OF_HEAD)
@pytest.mark.cases(6)
def test_a_transaction_without_isolation_commits_changes_that_only_head_records(
    lake: lv.Lake, place: Place, features: lv.Feature, verb: str
) -> None:
    change, names = OF_HEAD[verb]
    with lake.transaction(features=features) as txn:
        change(txn)
    assert txn.result is not None
    with place.connect() as other:
        assert [table.name for table in other.tables()] == names

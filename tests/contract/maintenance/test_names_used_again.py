"""The name of a table whose data was deleted: when it can be used again, and late objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.store.base import Failure, WrappedStore
from lakevilla.store.cached import CachedObjects
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.stores import Later, interrupted
from tests.support.tables import values

WINDOW = lv.Settings().reuse_after_seconds
AT_ONCE = lv.Settings(reuse_after_seconds=0)


@pytest.fixture
def clock() -> Later:
    return Later()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


def connected(place: Place, clock: Later, settings: lv.Settings | None = None) -> lv.Lake:
    lake = place.connect() if settings is None else place.connect(settings=settings)
    clock.of(lake)
    return lake


@pytest.fixture
def lake(place: Place, clock: Later) -> Iterator[lv.Lake]:
    with connected(place, clock) as lake:
        yield lake


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def append(lake: lv.Lake, *ids: int) -> None:
    lake.run(lambda txn: txn.append("t", rows(*ids)))


def log_of(place: Place) -> list[str]:
    directory = Path(place.root, "t/_delta_log")
    return sorted(path.name for path in directory.glob("*")) if directory.exists() else []


def entry(version: int) -> str:
    return f"t/_delta_log/{version:020}.json"


def stray(place: Place, lake: lv.Lake) -> None:
    """Have a slow publisher write its entry into the log of a table dropped meanwhile."""
    lake.create_table("t", rows(1))
    append(lake, 2)
    with place.connect() as slow:
        append(slow, 3)
        slept = interrupted(slow, entry(3).__eq__, lambda: lake.drop_table("t", delete_data=True))
        with slept:
            append(slow, 4)
    assert log_of(place) == [f"{3:020}.json"]


def test_a_slow_publisher_never_writes_into_a_later_table_of_the_same_name(
    place: Place, lake: lv.Lake, clock: Later
) -> None:
    lake.create_table("t", rows(0))
    append(lake, 1)

    def meanwhile() -> None:
        lake.drop_table("t", delete_data=True)
        with pytest.raises(lv.TableExists, match="can be used again"):
            lake.create_table("t", rows(100))

    with place.connect() as slow, interrupted(slow, entry(2).__eq__, meanwhile):
        append(slow, 2)
    assert lake.gc().ok
    clock.ahead_seconds += WINDOW + 60
    lake.create_table("t", rows(100))
    for number in range(101, 105):
        append(lake, number)
    for client in (lake, place.connect()):
        assert values(client.snapshot().read("t")) == [100, 101, 102, 103, 104]
    assert sorted(row["id"] for row in place.seen("t")) == [100, 101, 102, 103, 104]
    assert place.connect().doctor().ok


def test_a_deleted_name_is_refused_until_no_late_request_can_arrive(
    place: Place, lake: lv.Lake, clock: Later
) -> None:
    lake.create_table("t", rows(1))
    lake.drop_table("t", delete_data=True)
    for client in (lake, connected(place, clock)):
        clock.ahead_seconds = WINDOW - 60
        with pytest.raises(lv.TableExists) as told:
            client.create_table("t", rows(2))
        for part in ("table t ", "deleted at 20", "used again from 20", "another", "overwrite"):
            assert part in told.value.message
        with pytest.raises(lv.TableExists):
            client.create_table("t", rows(2), exist_ok=True)
    clock.ahead_seconds = WINDOW + 60
    lake.create_table("t", rows(2))
    lake.drop_table("t")
    with pytest.raises(lv.TableExists, match="register"):
        lake.create_table("t", rows(3))


def test_a_table_dropped_without_its_data_keeps_its_name(lake: lv.Lake, place: Place) -> None:
    lake.create_table("t", rows(1))
    lake.drop_table("t")
    lake.register("t")
    assert values(place.connect().snapshot().read("t")) == [1]


def test_a_create_begun_before_the_name_was_deleted_is_a_conflict(
    place: Place, lake: lv.Lake
) -> None:
    with place.connect() as other:
        txn = other.transaction()
        txn.create_table("t", rows(9))
        lake.create_table("t", rows(1))
        lake.drop_table("t", delete_data=True)
        with pytest.raises(lv.ConflictError):
            txn.commit()
        with pytest.raises(lv.TableExists, match="can be used again"):
            other.run(lambda txn: txn.create_table("t", rows(9)))
    assert log_of(place) == []


def test_objects_written_after_a_drop_are_reported_by_doctor_and_deleted_by_gc(
    place: Place, lake: lv.Lake, clock: Later
) -> None:
    stray(place, lake)
    told = place.connect().doctor()
    assert not told.ok
    assert [(f.kind, f.table, f.key) for f in told.findings] == [("stray", "t", entry(3))]
    with pytest.raises(lv.TableNotFound, match=r"data was deleted .*gc"):
        lake.register("t")
    planned = lake.gc(dry_run=True)
    assert [f.key for f in planned.findings if f.table == "t"] == [entry(3)]
    assert log_of(place) == [f"{3:020}.json"]
    clock.ahead_seconds = WINDOW / 2
    assert [f.key for f in lake.gc().findings if f.table == "t"] == [entry(3)]
    assert log_of(place) == []
    assert place.connect().doctor().findings == ()
    # A slow client may delete the same object, so the time begins again with the deletion.
    clock.ahead_seconds = WINDOW + 60
    with pytest.raises(lv.TableExists, match="can be used again"):
        lake.create_table("t", rows(5))
    clock.ahead_seconds = 2 * WINDOW
    lake.create_table("t", rows(5))
    assert values(place.connect().snapshot().read("t")) == [5]


def test_objects_written_after_a_drop_are_deleted_when_the_table_is_created_again(
    place: Place, lake: lv.Lake, clock: Later
) -> None:
    stray(place, lake)
    clock.ahead_seconds = WINDOW + 60
    with pytest.raises(lv.TableExists, match="can be used again"):
        lake.create_table("t", rows(5))
    assert log_of(place) == []
    clock.ahead_seconds = 2 * WINDOW + 120
    lake.create_table("t", rows(5))
    assert values(place.connect().snapshot().read("t")) == [5]


def test_a_sole_writer_can_use_a_deleted_name_at_once_even_with_objects_written_after(
    place: Place, clock: Later
) -> None:
    with connected(place, clock, AT_ONCE) as lake:
        stray(place, lake)
        with lake.transaction() as txn:
            txn.create_table("other", rows(1))
            txn.create_table("t", rows(5))
        assert values(place.connect().snapshot().read("t")) == [5]
        lake.drop_table("t", delete_data=True)
        lake.create_table("t", rows(6))
        assert values(place.connect().snapshot().read("t")) == [6]


def test_a_foreign_table_at_a_deleted_name_is_kept(
    place: Place, lake: lv.Lake, clock: Later
) -> None:
    lake.create_table("t", rows(1))
    lake.drop_table("t", delete_data=True)
    place.write("t", rows(7))
    for _ in range(2):
        assert place.connect().doctor().ok
        assert lake.gc().ok
        with pytest.raises(lv.TableExists, match=r"register|can be used again"):
            lake.create_table("t", rows(5))
        clock.ahead_seconds = WINDOW + 60
    assert place.seen("t") == [{"id": 7}]
    lake.register("t")
    assert values(place.connect().snapshot().read("t")) == [7]


class _Broken(WrappedStore):
    """A store that deletes only some log entries, and then fails."""

    left = 1

    def delete(self, key: str) -> Failure | None:
        if "/_delta_log/" in key:
            if not self.left:
                return Failure("turned down", ambiguous=False, permanent=True)
            self.left -= 1
        return self.inner.delete(key)


def half_deleted(place: Place, lake: lv.Lake) -> None:
    lake.create_table("t", rows(1))
    append(lake, 2)
    inner = inside(lake).store
    inside(lake).store = _Broken(inner)
    with pytest.raises(lv.StoreError, match="turned down"):
        lake.drop_table("t", delete_data=True)
    inside(lake).store = inner
    assert log_of(place) == [f"{0:020}.json"]


def test_an_interrupted_deletion_is_finished_by_drop_table(place: Place, lake: lv.Lake) -> None:
    half_deleted(place, lake)
    told = place.connect().doctor()
    assert [(f.kind, f.table) for f in told.findings] == [("half_deleted", "t")]
    with pytest.raises(lv.TableExists, match="drop_table"):
        lake.create_table("t", rows(5))
    with pytest.raises(lv.InvalidOperation, match="drop_table"):
        lake.register("t")
    with pytest.raises(lv.TableNotFound):
        lake.drop_table("t")
    place.connect().drop_table("t", delete_data=True)
    assert log_of(place) == []
    assert place.connect().doctor().ok
    with pytest.raises(lv.TableNotFound):
        lake.drop_table("t", delete_data=True)
    with pytest.raises(lv.TableExists, match="can be used again"):
        lake.create_table("t", rows(5))


def test_gc_finishes_an_abandoned_deletion(place: Place, lake: lv.Lake, clock: Later) -> None:
    half_deleted(place, lake)
    lake.gc()
    assert log_of(place) == [f"{0:020}.json"]  # the deleting client may still be at work
    clock.ahead_seconds = WINDOW + 60
    told = lake.gc(dry_run=True)
    assert [f.kind for f in told.findings if f.table == "t"] == ["half_deleted"]
    assert log_of(place) == [f"{0:020}.json"]
    assert [f.kind for f in lake.gc().findings if f.table == "t"] == ["half_deleted"]
    assert log_of(place) == []
    with pytest.raises(lv.TableExists, match="can be used again"):
        lake.create_table("t", rows(5))
    clock.ahead_seconds = 3 * WINDOW
    lake.create_table("t", rows(5))
    assert values(place.connect().snapshot().read("t")) == [5]


def test_gc_keeps_a_foreign_table_in_place_of_a_half_deleted_one(
    place: Place, lake: lv.Lake, clock: Later
) -> None:
    half_deleted(place, lake)
    Path(place.root, entry(0)).unlink()
    place.write("t", rows(7))
    clock.ahead_seconds = WINDOW + 60
    lake.gc()
    assert place.seen("t") == [{"id": 7}]
    assert place.connect().doctor().ok
    lake.register("t")
    assert values(place.connect().snapshot().read("t")) == [7]


def test_a_slow_deletion_stops_when_another_client_has_finished_it(
    place: Place, lake: lv.Lake, clock: Later
) -> None:
    lake.create_table("t", rows(1))
    for number in range(3):
        append(lake, number)
    deleted: list[str] = []

    class Slow(WrappedStore):
        def delete(self, key: str) -> Failure | None:
            if "/_delta_log/" in key:
                deleted.append(key)
                if len(deleted) == 2:
                    other = connected(place, clock, AT_ONCE)
                    other.drop_table("t", delete_data=True)
                    other.create_table("t", rows(8))
                clock.ahead_seconds += WINDOW / 2
            return self.inner.delete(key)

    inside(lake).store = Slow(inside(lake).store)
    lake.drop_table("t", delete_data=True)
    assert [key[-6:] for key in deleted] == ["3.json", "2.json"]
    assert values(place.connect().snapshot().read("t")) == [8]


def test_a_publisher_reads_head_again_after_it_has_slept(
    place: Place, lake: lv.Lake, clock: Later
) -> None:
    lake.create_table("t", rows(1))
    append(lake, 2)
    with connected(place, Later()) as slow:
        assert isinstance(inside(slow).clock, Later)
        other = inside(slow).clock

        class Asleep(WrappedStore):
            """A store whose client sleeps long before it reads the commit that it publishes."""

            slept = False

            def put(self, key, body, condition):  # type: ignore[no-untyped-def]
                outcome = self.inner.put(key, body, condition)
                if key == "_lakevilla/HEAD.json" and not self.slept:
                    self.slept = True
                    inside(slow).context.commits = CachedObjects()
                return outcome

            def get(self, key, known=None, byte_range=None):  # type: ignore[no-untyped-def]
                if self.slept and "/commits/" in key and not other.ahead_seconds:
                    other.ahead_seconds = clock.ahead_seconds = WINDOW + 60
                    lake.drop_table("t", delete_data=True)
                    clock.ahead_seconds = 2 * WINDOW + 120
                    lake.create_table("t", rows(100))
                    append(lake, 101)
                return self.inner.get(key, known, byte_range)

        asleep = Asleep(inside(slow).store)
        inside(slow).store = asleep
        append(slow, 3)
        assert asleep.slept
        assert other.ahead_seconds
    assert log_of(place) == [f"{number:020}.json" for number in range(2)]
    assert values(place.connect().snapshot().read("t")) == [100, 101]


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R])
@pytest.mark.parametrize("when", ["begun before the drop", "begun after the new one was made"])
def test_a_writer_by_log_entry_alone_does_not_write_old_rows_into_a_recreated_table(
    place: Place, lake: lv.Lake, clock: Later, features: lv.Feature, when: str
) -> None:
    lake.create_table("t", rows(0))
    with connected(place, clock) as other:
        for number in range(1, 5):
            other.run(lambda txn, n=number: txn.append("t", rows(n)), features=features)
        txn = None
        if when == "begun before the drop":
            txn = other.transaction(features)
            txn.append("t", rows(9))
        lake.drop_table("t", delete_data=True)
        clock.ahead_seconds += WINDOW + 60
        lake.create_table("t", rows(100))
        append(lake, 101)
        if txn is not None:
            with pytest.raises(lv.ConflictError, match="created again"):
                txn.commit()
        other.run(lambda txn: txn.append("t", rows(102)), features=features)
    assert values(place.connect().snapshot().read("t")) == [100, 101, 102]
    assert sorted(row["id"] for row in place.seen("t")) == [100, 101, 102]

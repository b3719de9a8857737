"""Vacuum of an Iceberg table: the snapshots and files that it removes or keeps."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.stores import Dying, InterruptedStore, interrupted, is_entry
from tests.support.tables import contents

DAY_MS = 24 * 3_600_000


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    """Make a table of four snapshots: rows 0 to 3 with v = 0, then 1, then 2; then row 4."""
    with place.connect() as lake:
        lake.create_table("t", [{"id": number, "v": 0} for number in range(4)])
        for _ in range(2):
            with lake.transaction() as txn:
                txn.update("t", {"v": "v + 1"}, where="true")
        with lake.transaction() as txn:
            txn.append("t", [{"id": 4, "v": 9}])
        yield lake


ROWS = [{"id": n, "v": 2} for n in range(4)] + [{"id": 4, "v": 9}]


def kept(place: Place) -> dict[str, bytes]:
    """Return all objects but the one that a vacuum writes to learn the store's time."""
    return {key: body for key, body in contents(place.root).items() if "time.json" not in key}


def foreign(place: Place) -> Table:
    return place.catalog().load_table("t")


def age(place: Place, days: float = 30, *, snapshots: bool = True) -> None:
    """Make the table look old: change the times of objects and, in metadata, of snapshots."""
    if snapshots:
        newest = Path(place.uri("t"), f"metadata/v{version(place)}.metadata.json")
        document = json.loads(newest.read_bytes())
        for one in (*document["snapshots"], *document["snapshot-log"]):
            one["timestamp-ms"] -= int(days * DAY_MS)
        newest.write_text(json.dumps(document))
    then = time.time() - days * 24 * 3600
    for path in Path(place.uri("t")).rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def version(place: Place) -> int:
    return int(Path(place.uri("t"), "metadata/version-hint.text").read_text())


def objects(place: Place) -> set[str]:
    """Return the stored data files, manifests and manifest lists."""
    root = Path(place.uri("t"))
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.suffix in (".parquet", ".avro", ".puffin")
    }


def named(place: Place) -> set[str]:
    """Return what the table's snapshots name, as pyiceberg reads them."""
    table = foreign(place)
    found = set()
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                if entry.status != ManifestEntryStatus.DELETED:
                    found.add(entry.data_file.file_path)
    start = f"{table.location()}/"
    assert all(uri.startswith(start) for uri in found)
    return {uri.removeprefix(start) for uri in found}


def vacuum_now(lake: lv.Lake, *, dry_run: bool = False) -> list[str]:
    return lake.table("t").vacuum(0, dry_run, enforce_retention_duration=False)


def read(lake: lv.Lake, at: int | None = None) -> list[dict[str, Any]]:
    rows = lake.snapshot(version=at).read("t").to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def test_vacuum_deletes_what_its_dry_run_lists_and_keeps_what_the_newest_snapshot_names(
    place: Place, lake: lv.Lake
) -> None:
    before = kept(place)
    assert lake.table("t").vacuum() == []
    told = vacuum_now(lake, dry_run=True)
    assert kept(place) == before
    assert vacuum_now(lake) == told
    assert objects(place) == named(place)
    assert len(foreign(place).snapshots()) == 1
    assert read(lake) == ROWS == place.seen("t")
    assert lake.doctor().ok
    assert vacuum_now(lake) == []
    with place.connect() as other, other.transaction() as txn:
        txn.delete("t", where="id = 4")
    assert read(lake) == ROWS[:4] == place.seen("t")
    past = next(one.version for one in lake.history() if one.kind == "transaction") - 3
    with pytest.raises(lv.VersionNotFound, match="expired"):
        read(lake, past)


def test_vacuum_keeps_snapshots_that_were_current_within_the_retention(
    place: Place, lake: lv.Lake
) -> None:
    age(place)
    with place.connect() as other:
        with other.transaction() as txn:
            txn.append("t", [{"id": 5, "v": 0}])
        # All old snapshots were replaced long ago, except the last: it was current until just now.
        assert other.table("t").vacuum(dry_run=False)
        assert len(foreign(place).snapshots()) == 2
        assert objects(place) == named(place)
        first = foreign(place).snapshots()[0]
        rows = foreign(place).scan(snapshot_id=first.snapshot_id).to_arrow().to_pylist()
        assert sorted(rows, key=lambda row: row["id"]) == ROWS


def test_vacuum_keeps_branches_and_tags_with_all_their_files(place: Place, lake: lv.Lake) -> None:
    table = foreign(place)
    first, second, third, _ = (one.snapshot_id for one in table.snapshots())
    with table.manage_snapshots() as manage:
        manage.create_tag(first, "start").create_branch(
            third, "audit", max_snapshot_age_ms=1, min_snapshots_to_keep=2
        )
    age(place)
    with place.connect() as other:
        other.table("t").vacuum(dry_run=False)
        kept = foreign(place)
        assert {first, second, third} < {one.snapshot_id for one in kept.snapshots()}
        assert objects(place) == named(place)
        for name, v in (("start", 0), ("audit", 2)):
            found = kept.scan(snapshot_id=kept.refs()[name].snapshot_id).to_arrow()
            assert found["v"].to_pylist() == [v] * 4
        assert read(other) == ROWS


def test_vacuum_follows_a_branchs_own_longer_snapshot_age(place: Place, lake: lv.Lake) -> None:
    table = foreign(place)
    with table.manage_snapshots() as manage:
        manage.create_branch(table.snapshots()[2].snapshot_id, "b", max_snapshot_age_ms=40 * DAY_MS)
    age(place)
    with place.connect() as other:
        other.table("t").vacuum(dry_run=False)
    assert len(foreign(place).snapshots()) == 4


def test_a_branchs_snapshot_age_does_not_protect_an_older_state_after_a_vacuum(
    place: Place, lake: lv.Lake
) -> None:
    """Vacuum takes the store's clock; by a client's clock that is behind, more would be kept."""
    table = foreign(place)
    with table.manage_snapshots() as manage:
        manage.create_branch(table.snapshots()[2].snapshot_id, "b", max_snapshot_age_ms=40 * DAY_MS)
    age(place)
    with place.connect() as other:
        other.table("t").vacuum(dry_run=False)
        with pytest.raises(lv.VersionNotFound, match="was vacuumed, or may be"):
            other.rollback(2)
        for make in (other.tag, other.branch):
            with pytest.raises(lv.VersionNotFound, match="was vacuumed, or may be"):
                make("old", at=2)
        assert read(other) == ROWS


def test_vacuum_keeps_the_tables_minimum_number_of_snapshots(place: Place, lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.alter("t", set_properties={"history.expire.min-snapshots-to-keep": "3"})
    vacuum_now(lake)
    assert len(foreign(place).snapshots()) == 3
    assert objects(place) == named(place)


def test_vacuum_keeps_a_snapshot_from_which_main_was_set_back_for_the_retention(
    place: Place, lake: lv.Lake
) -> None:
    table = foreign(place)
    left = table.current_snapshot()
    assert left is not None
    assert left.parent_snapshot_id is not None
    with table.manage_snapshots() as manage:
        manage.set_current_snapshot(left.parent_snapshot_id)
    age(place)
    newest = Path(place.uri("t"), f"metadata/v{version(place)}.metadata.json")
    document = json.loads(newest.read_bytes())
    document["snapshot-log"][-1]["timestamp-ms"] += 30 * DAY_MS  # main was set back just now
    newest.write_text(json.dumps(document))
    with place.connect() as other:
        other.table("t").vacuum(dry_run=False)
        assert left.snapshot_id in {one.snapshot_id for one in foreign(place).snapshots()}
        assert len(foreign(place).snapshots()) == 2
        assert read(other) == ROWS[:4]


@pytest.mark.parametrize("hours", [0, 119.9])
def test_a_vacuum_with_a_retention_below_the_tables_own_is_refused(
    place: Place, lake: lv.Lake, hours: float
) -> None:
    before = kept(place)
    told = r"table t: .* below the table's 120 \(history.expire.max-snapshot-age-ms"
    for dry_run in (True, False):
        with pytest.raises(lv.InvalidOperation, match=told):
            lake.table("t").vacuum(hours, dry_run)
    assert kept(place) == before


def test_vacuum_keeps_all_files_for_a_day_even_if_the_tables_age_limit_is_lower(
    place: Place, lake: lv.Lake
) -> None:
    with lake.transaction() as txn:
        txn.alter("t", set_properties={"history.expire.max-snapshot-age-ms": "1000"})
    with pytest.raises(lv.InvalidOperation, match="below the table's 24 "):
        lake.table("t").vacuum(23)
    assert lake.table("t").vacuum(24) == []


def by_another(place: Place, properties: dict[str, str]) -> None:
    """Set properties by a client that doesn't check values."""
    with place.catalog().load_table("t").transaction() as txn:
        txn.set_properties(properties)


@pytest.mark.parametrize("value", ["false", "FALSE", "no", "0", " false", ""])
def test_vacuum_refuses_a_table_whose_files_another_table_may_use(
    place: Place, lake: lv.Lake, value: str
) -> None:
    by_another(place, {"gc.enabled": value})
    refused(place, lv.InvalidOperation, r"gc\.enabled is not true")


def refused(place: Place, error: type[Exception], match: str) -> None:
    before = kept(place)
    with place.connect() as other:
        for dry_run in (True, False):
            with pytest.raises(error, match=match):
                vacuum_now(other, dry_run=dry_run)
    assert kept(place) == before


def test_vacuum_refuses_a_directory_that_a_catalogs_table_shares(
    place: Place, lake: lv.Lake, tmp_path: Path
) -> None:
    """The catalog's table continues from one of our versions, with files that our table lacks."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=place.root)
    catalog.create_namespace("n")
    location = foreign(place).metadata_location
    table = catalog.register_table("n.t", location)
    table.append(table.scan(limit=1).to_arrow())
    age(place)
    refused(place, lv.InvalidOperation, r"/00000-.*metadata\.json is of another table")
    assert catalog.load_table("n.t").scan().to_arrow().num_rows == 6


def test_vacuum_refuses_a_directory_with_a_delta_log(place: Place, lake: lv.Lake) -> None:
    log = Path(place.uri("t"), "_delta_log/00000000000000000000.json")
    log.parent.mkdir()
    log.write_text("{}")
    before = kept(place)
    with pytest.raises(lv.InvalidOperation, match=r"_delta_log/.* is of another table"):
        vacuum_now(lake)
    assert kept(place) == before


@pytest.mark.parametrize(
    "spelled",
    [
        "{root}/t/in/x.parquet",
        "file:{root}/t/in/x.parquet",
        "file://{root}/t//in/x.parquet",
        "{root}//t/in/x.parquet",
        "{root}/t/./in/x.parquet",
        "{link}/t/in/x.parquet",
        "file://{link}/t/in/x.parquet",
        "{root}/t/in/a b%20=é.parquet",
        "{root}/t/in/_p=1/x.parquet",
    ],
)
def test_vacuum_keeps_a_file_however_its_uri_is_spelled(
    place: Place, lake: lv.Lake, tmp_path: Path, spelled: str
) -> None:
    link = tmp_path / "link"
    link.symlink_to(place.root)
    uri = spelled.format(root=place.root, link=link)
    path = Path(uri.removeprefix("file://").removeprefix("file:"))
    path.parent.mkdir(parents=True)
    rows = pa.table({"id": pa.array([5], pa.int64()), "v": pa.array([5], pa.int64())})
    pq.write_table(rows, path)
    foreign(place).add_files([uri])
    age(place)
    with place.connect() as other:
        vacuum_now(other)
        assert read(other) == [*ROWS, {"id": 5, "v": 5}] == place.seen("t")


def _first(document: dict[str, Any], part: str) -> Any:
    return document["refs"]["main"] if part == "refs" else document[part][0]


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("refs", {"snapshot-id": "1"}),
        ("refs", {"snapshot-id": None}),
        ("refs", {"min-snapshots-to-keep": "2"}),
        ("refs", {"max-snapshot-age-ms": [1]}),
        ("snapshots", {"timestamp-ms": "x"}),
        ("snapshots", {"timestamp-ms": None}),
        ("snapshots", {"parent-snapshot-id": "x"}),
        ("snapshot-log", {"snapshot-id": "x"}),
        ("snapshot-log", {"timestamp-ms": None}),
        ("statistics", {"statistics-path": None}),
        ("statistics", {"snapshot-id": "1"}),
        ("snapshot-log", {"timestamp-ms": "x"}),
    ],
)
def test_vacuum_refuses_metadata_with_parts_that_it_cannot_interpret(
    place: Place, lake: lv.Lake, part: str, change: Any
) -> None:
    newest = Path(place.uri("t"), "metadata/v4.metadata.json")
    document = json.loads(newest.read_bytes())
    one = {"snapshot-id": 1, "statistics-path": "x"}
    document["statistics"] = [one]
    _first(document, part).update(change)
    newest.write_text(json.dumps(document))
    before = kept(place)
    with place.connect() as other:
        with pytest.raises(lv.CorruptObject, match=f"{part} in metadata file t/metadata/v4.meta"):
            vacuum_now(other)
    assert kept(place) == before


@pytest.mark.parametrize("value", ["²", "9" * 5000, "-1", "x"])
def test_an_age_limit_that_is_invalid_or_too_large_expires_no_snapshot_sooner(
    place: Place, lake: lv.Lake, value: str
) -> None:
    by_another(place, {"history.expire.max-snapshot-age-ms": value})
    age(place, days=4)
    with place.connect() as other:
        assert other.table("t").vacuum(dry_run=False) == []


def test_vacuum_deletes_only_old_files_that_no_version_names(place: Place, lake: lv.Lake) -> None:
    root = Path(place.uri("t"))
    gone = ["data/k=1/left.parquet", "data/left.puffin", "metadata/left-m0.avro"]
    kept = ["data/notes.txt", "data/_other/x.parquet", "data/x.avro", "metadata/notes.json"]
    for name in (*gone, *kept):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"left")
    assert lake.table("t").vacuum(dry_run=False) == []
    age(place, snapshots=False)
    (root / "metadata/young-m0.avro").write_bytes(b"another writer's, at work")
    assert lake.table("t").vacuum() == gone
    assert lake.table("t").vacuum(dry_run=False) == gone
    assert all((root / name).exists() for name in (*kept, "metadata/young-m0.avro"))
    assert version(place) == 4, "nothing was to be expired"


def test_vacuum_keeps_statistics_files_as_long_as_their_snapshot(
    place: Place, lake: lv.Lake
) -> None:
    newest = Path(place.uri("t"), "metadata/v4.metadata.json")
    document = json.loads(newest.read_bytes())
    root, first, last = document["location"], *(document["snapshots"][n] for n in (0, -1))
    document["statistics"] = []
    for name, one in (("old", first), ("new", last)):
        path = f"{root}/metadata/{name}.puffin"
        Path(path.removeprefix("file://")).write_bytes(b"statistics")
        known = {
            "snapshot-id": one["snapshot-id"],
            "statistics-path": path,
            "file-size-in-bytes": 10,
            "file-footer-size-in-bytes": 5,
            "blob-metadata": [],
        }
        document["statistics"].append(known)
    newest.write_text(json.dumps(document))
    with place.connect() as other:
        assert "metadata/old.puffin" in vacuum_now(other)
    assert Path(place.uri("t"), "metadata/new.puffin").exists()
    (told,) = foreign(place).metadata.statistics
    assert told.snapshot_id == last["snapshot-id"]


def test_vacuum_keeps_files_that_running_transactions_have_written_or_read(
    place: Place, lake: lv.Lake
) -> None:
    settings = lv.Settings(in_memory_file_limit_bytes=0)
    with place.connect(settings=settings) as other:
        saved = other.transaction(read_only=False)
        assert saved.read("t").num_rows == 5
        saved.append("t", [{"id": 5, "v": 0}])
        saved.save()
        running = other.transaction()
        running.append("t", [{"id": 6, "v": 0}])
        with lake.transaction() as txn:
            txn.update("t", {"v": "7"}, where="id = 4")
        age(place, snapshots=False)
        vacuum_now(lake)
        assert sorted(saved.read("t")["v"].to_pylist()) == [0, 2, 2, 2, 2, 9]
        running.commit()
        saved.abort()
    expected = [*ROWS[:4], {"id": 4, "v": 7}, {"id": 6, "v": 0}]
    assert read(lake) == expected == place.seen("t")


def test_vacuum_keeps_files_of_an_unpublished_commit_and_the_files_that_it_replaces(
    place: Place, lake: lv.Lake
) -> None:
    with place.connect() as other:
        dies_before_version(other)
    left = {path for path in objects(place) if path.startswith("metadata/")}
    age(place)
    with place.connect() as fresh:
        vacuum_now(fresh)
        assert place.seen("t") == ROWS
        assert [row["v"] for row in read(fresh)] == [7] * 5
        newest = {path for path in left if path.endswith("-m1.avro")}
        assert newest & objects(place), "somebody may be publishing with these manifests"
        fresh.recover()
        assert [row["v"] for row in place.seen("t")] == [7] * 5
        vacuum_now(fresh)
    assert objects(place) == named(place)


def dies_before_version(lake: lv.Lake) -> None:
    """Decide an update and store its manifests; the process then dies before it publishes."""

    class Crash(BaseException):
        pass

    def crash() -> None:
        raise Crash

    inside(lake).store = InterruptedStore(inside(lake).store, is_entry("t"), crash)
    with pytest.raises(Crash), lake.transaction() as txn:
        txn.update("t", {"v": "7"}, where="true")


def test_vacuum_notices_a_tag_that_another_client_sets_right_before_the_expiry(
    place: Place, lake: lv.Lake
) -> None:
    table = foreign(place)
    first = table.snapshots()[0].snapshot_id

    def tag() -> None:
        with table.manage_snapshots() as manage:
            manage.create_tag(first, "keep")

    with interrupted(lake, is_entry("t"), tag):
        vacuum_now(lake)
    found = foreign(place).scan(snapshot_id=first).to_arrow()
    assert found["v"].to_pylist() == [0] * 4
    assert objects(place) == named(place)


def test_a_transaction_that_commits_right_before_the_expiry_loses_nothing(
    place: Place, lake: lv.Lake
) -> None:
    with place.connect() as other:

        def commit() -> None:
            with other.transaction() as txn:
                txn.update("t", {"v": "v + 1"}, where="id < 2")

        with interrupted(lake, is_entry("t"), commit):
            vacuum_now(lake)
        expected = [3, 3, 2, 2, 9]
        assert [row["v"] for row in read(other)] == expected
        assert [row["v"] for row in place.seen("t")] == expected
        assert other.doctor().ok


def test_the_next_vacuum_goes_on_after_a_crash_at_any_write(tmp_path: Path) -> None:
    for writes in itertools.count():
        place = Place(str(tmp_path / str(writes)), format="iceberg")
        with place.connect() as lake:
            lake.create_table("t", [{"id": 0, "v": 0}], format="iceberg")
            with lake.transaction() as txn:
                txn.update("t", {"v": "1"}, where="true")
        with place.connect() as dying:
            inside(dying).client.ensure_safe_store()
            store = inside(dying).store = Dying(inside(dying).store, writes)
            with contextlib.suppress(Dying.Death):
                vacuum_now(dying)
        with place.connect() as other:
            assert read(other) == [{"id": 0, "v": 1}] == place.seen("t")
            vacuum_now(other)
            assert read(other) == [{"id": 0, "v": 1}] == place.seen("t")
            assert objects(place) == named(place)
            assert other.recover().ok
            assert other.doctor().ok
        if not store.died:
            break
    assert writes > 4


@pytest.mark.parametrize("stored", [True, False])
def test_vacuum_publishes_its_version_once_though_the_stores_answer_is_lost(
    place: Place, lake: lv.Lake, stored: bool
) -> None:
    class Lost(WrappedStore):
        lost = 0

        def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
            if is_entry("t")(key) and not self.lost:
                self.lost += 1
                if stored:
                    super().put(key, body, condition)
                return Failure("the connection was closed")
            return super().put(key, body, condition)

    store = inside(lake).store = Lost(inside(lake).store)
    vacuum_now(lake)
    assert store.lost == 1
    assert version(place) == 5
    assert len(foreign(place).snapshots()) == 1
    assert objects(place) == named(place)
    assert read(lake) == ROWS == place.seen("t")


def test_vacuum_does_not_publish_under_a_version_number_that_others_used_and_deleted(
    tmp_path: Path,
) -> None:
    place = Place(str(tmp_path / "lake"), format="iceberg")
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    with place.connect() as lake, place.connect() as other:
        lake.create_table("t", [{"id": 0}], format="iceberg", properties=properties)
        for number in (1, 2, 3):
            with lake.transaction() as txn:
                txn.append("t", [{"id": number}])

        def others() -> None:
            for number in (4, 5, 6, 7):
                with other.transaction() as txn:
                    txn.append("t", [{"id": number}])

        with interrupted(lake, is_entry("t"), others):
            vacuum_now(lake)
        newest = max(
            int(path.name[1:].split(".")[0])
            for path in Path(place.uri("t"), "metadata").glob("v*.metadata.json")
        )
        assert version(place) == newest
        assert [row["id"] for row in read(lake)] == list(range(8))
        assert [row["id"] for row in place.seen("t")] == list(range(8))
        assert len(foreign(place).snapshots()) == 5, "those that came in between are younger"


def test_vacuum_of_a_table_that_is_not_published_yet_expires_nothing(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"), format="iceberg")
    with place.connect() as other, pytest.raises(Dying.Death):
        inside(other).client.ensure_safe_store()

        def die() -> None:
            raise Dying.Death

        inside(other).store = InterruptedStore(inside(other).store, is_entry("t"), die)
        other.create_table("t", [{"id": 0}], format="iceberg")
    with place.connect() as lake:
        assert vacuum_now(lake) == []
        assert read(lake) == [{"id": 0}]
        lake.recover()
        assert place.seen("t") == [{"id": 0}]


def test_vacuum_gives_up_with_a_conflict_if_other_clients_write_all_the_time(
    place: Place, lake: lv.Lake
) -> None:
    class Busy(WrappedStore):
        def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
            if is_entry("t")(key):
                foreign(place).append(foreign(place).scan(limit=0).to_arrow())
            return super().put(key, body, condition)

    before = objects(place)
    inner = inside(lake).store
    inside(lake).store = Busy(inner)
    with pytest.raises(lv.ConflictError, match="vacuum of table t: other clients wrote it so fast"):
        vacuum_now(lake)
    inside(lake).store = inner
    assert before <= objects(place)
    assert read(lake) == ROWS


def test_a_damaged_snapshot_stops_vacuum_before_it_deletes(place: Place, lake: lv.Lake) -> None:
    with foreign(place).manage_snapshots() as manage:
        manage.create_tag(foreign(place).snapshots()[0].snapshot_id, "start")
    first = foreign(place).snapshots()[0].manifest_list
    Path(first.removeprefix("file://")).unlink()
    before = objects(place)
    with place.connect() as other, pytest.raises(lv.CorruptObject, match="manifest list"):
        vacuum_now(other)
    assert objects(place) == before


def test_a_vacuums_version_enters_the_lakes_history_as_a_foreign_commit(
    place: Place, lake: lv.Lake
) -> None:
    """A vacuum publishes a version like any other client does; it changes no rows."""
    started = datetime.datetime.now(datetime.UTC)
    vacuum_now(lake)
    with lake.transaction() as txn:
        txn.append("t", [{"id": 5, "v": 0}])
    newest, own, *_ = lake.history()
    assert newest.kind == "transaction"
    assert own.kind == "foreign"
    assert own.timestamp >= started
    assert read(lake, own.version) == ROWS

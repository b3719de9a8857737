"""A table's own versions: a read equals that of any other reader, or says why it fails."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.foreign_changes import delete_by_vector
from tests.support.inside import inside
from tests.support.places import Place, decide_and_leave, make_place
from tests.support.stores import Closed, interrupted, is_entry
from tests.support.tables import Row, accounts, contents, in_order, values

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "tag": [f"t{i}" for i in ids]})


def versions(table: lv.Table[pa.Table]) -> list[int]:
    return [kept.version for kept in table.versions()]


def each_version(table: lv.Table[pa.Table]) -> dict[int, list[Row]]:
    return {version: list(in_order(table.read(version=version))) for version in versions(table)}


def entry_of(place: Place, table: str, version: int) -> Path:
    return Path(place.root, table, "_delta_log", f"{version:020}.json")


def dated(place: Place, table: str, *minutes: int) -> None:
    """Set the store's time of log entry n to ``minutes[n]`` after the start."""
    for version, minute in enumerate(minutes):
        seconds = (START + timedelta(minutes=minute)).timestamp()
        os.utime(entry_of(place, table, version), (seconds, seconds))


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


# -------------------------------------------------------------------- what is shown


def test_table_versions_from_before_the_table_entered_the_lake_are_readable(
    shared_place: Place,
) -> None:
    for number in range(3):
        shared_place.write("a", rows(number))
    with shared_place.connect() as lake:
        lake.run(lambda txn: txn.append("a", rows(7)))
        lake.run(lambda txn: txn.delete("a", where="id = 0"))
        table = lake.table("a")
        # pyiceberg creates the table in one version and adds its rows in the next.
        first = 1 if shared_place.format == "iceberg" else 0
        assert versions(table) == list(range(first + 4, -1, -1))
        sizes = [table.read(version=version).num_rows for version in range(first, first + 5)]
        assert sizes == [1, 2, 3, 4, 3]
        assert in_order(table.read()) == in_order(table.read(version=first + 4))
        assert values(table.read(["id"], where="id > :n", params={"n": 0}, version=first + 2)) == [
            1,
            2,
        ]
        with pytest.raises(lv.VersionNotFound):
            lake.read("a", version=99)  # the version of lake.read is a global one
        assert lake.read("a", version=1).num_rows == 4
        assert lake.scan("a", timestamp=lake.history()[0].timestamp).read_all().num_rows == 3
        assert lake.sql("SELECT count(*) AS n FROM a", version=1)["n"][0].as_py() == 4


def test_a_read_of_a_past_table_version_has_the_columns_of_that_version(quick_place: Place) -> None:
    properties = {} if quick_place.format == "iceberg" else {"delta.columnMapping.mode": "name"}
    with quick_place.connect() as lake:
        first = [{"id": 1, "tag": "t1", "more": 0}]
        lake.create_table("a", first, partition_by="tag", properties=properties)
        lake.run(lambda txn: txn.alter("a", rename_columns={"id": "number"}))
        lake.run(lambda txn: txn.append("a", [{"number": 2, "tag": "t1", "more": 0}]))
        lake.run(lambda txn: txn.alter("a", drop_columns=["number"]))
        lake.run(lambda txn: txn.alter("a", add_columns=pa.schema([("number", pa.string())])))
        table = lake.table("a")
        last = versions(table)[0]
        shown = [table.read(version=version) for version in range(last - 4, last + 1)]
    assert [sorted(one.column_names) for one in shown] == [
        ["id", "more", "tag"],
        ["more", "number", "tag"],
        ["more", "number", "tag"],
        ["more", "tag"],
        ["more", "number", "tag"],
    ]
    assert (values(shown[0], "id"), values(shown[2], "number")) == ([1], [1, 2])
    assert shown[2]["tag"].to_pylist() == ["t1", "t1"]
    assert shown[4]["number"].to_pylist() == [None, None]


def test_rows_deleted_by_a_deletion_vector_are_in_the_table_versions_before_it(
    local_place: Place,
) -> None:
    local_place.write("bank", accounts(3))
    delete_by_vector(local_place, row=2)
    with local_place.connect() as lake:
        table = lake.table("bank")
        assert [values(table.read(version=version)) for version in (0, 1)] == [[0, 1, 2], [0, 1]]
        (vector,) = Path(local_place.root, "bank").glob("deletion_vector_*.bin")
        lake.table("bank").optimize()
        vector.unlink()
        with pytest.raises(lv.VersionNotFound, match=rf"version 1 .*{vector.name} was removed"):
            table.read(version=1)
        assert values(table.read(version=2)) == [0, 1]


# ------------------------------------------------------- what was never committed


def test_a_commit_decided_but_not_published_is_in_no_version_of_its_table(
    local_place: Place,
) -> None:
    for name in ("bank", "other"):
        local_place.write(name, accounts(3))
    decide_and_leave(local_place)
    with local_place.connect() as lake:
        bank = lake.table("bank")
        assert bank.version is None
        assert {row["balance"] for row in bank.read().to_pylist()} == {100, 105}
        assert versions(bank) == [0]
        assert {row["balance"] for row in bank.read(version=0).to_pylist()} == {100}
        soon = datetime.now(UTC) + timedelta(days=1)
        assert {row["balance"] for row in bank.read(timestamp=soon).to_pylist()} == {100}
        with pytest.raises(
            lv.VersionNotFound, match=r"no version 1 \(commits that are decided and not pub"
        ):
            bank.read(version=1)
        assert versions(lake.table("other")) == [1, 0]
        lake.recover()
        assert {row["balance"] for row in bank.read(version=1).to_pylist()} == {100, 105}


def test_a_table_whose_creation_is_not_published_has_no_version(local_place: Place) -> None:
    with local_place.connect() as lake:
        inside(lake).store = Closed(inside(lake).store, is_entry("a"))
        with lake.transaction() as txn:
            txn.create_table("a", rows(1))
    with local_place.connect() as lake:
        table = lake.table("a")
        assert (table.versions(), table.read().num_rows) == ([], 1)
        with pytest.raises(lv.VersionNotFound, match="creation is decided and not published"):
            table.read(version=0)


def test_a_commit_that_other_clients_made_unfit_is_in_no_version_as_it_was_first(
    local_place: Place,
) -> None:
    local_place.write("bank", accounts(3))

    def foreign() -> None:
        local_place.delta("bank").update({"balance": "balance + 1"}, predicate="id = 0")

    with local_place.connect() as lake:
        lake.run(lambda txn: txn.append("bank", [{"id": 9, "balance": 9}]))
        txn = lake.transaction()
        txn.update("bank", {"balance": "balance * 2"}, where="id = 0")
        with interrupted(lake, is_entry("bank"), foreign), pytest.raises(lv.ForeignConflict):
            txn.commit()
        shown = {
            version: next(row["balance"] for row in found if row["id"] == 0)
            for version, found in each_version(lake.table("bank")).items()
        }
    assert shown == {0: 100, 1: 100, 2: 101, 3: 202}


# ---------------------------------------------------------------------------- times


def test_a_time_stands_for_the_newest_table_version_that_is_not_later(local_place: Place) -> None:
    for number in range(3):
        local_place.write("a", rows(number))
    dated(local_place, "a", 0, 5, 5)
    with local_place.connect() as lake:
        table = lake.table("a")
        # An entry that isn't dated later than its predecessor counts as 1 ms later, as in Spark.
        assert [kept.timestamp for kept in table.versions()] == [
            at(5) + timedelta(milliseconds=1),
            at(5),
            at(0),
        ]
        for kept in table.versions():
            by_time, by_number = (
                table.read(timestamp=kept.timestamp),
                table.read(version=kept.version),
            )
            assert in_order(by_time) == in_order(by_number)
        assert table.read(timestamp=at(4.9)).num_rows == 1
        assert table.read(timestamp=at(5)).num_rows == 2
        assert table.read(timestamp=datetime.now(UTC) + timedelta(days=1)).num_rows == 3
        assert [kept.version for kept in table.versions(limit=2)] == [2, 1]
        with pytest.raises(
            lv.VersionNotFound,
            match=r"no version by 2026-03-01T11:59:00.000Z; those .* version 0 \(2026-03-01T12:00",
        ):
            table.read(timestamp=at(-1))


def test_in_commit_timestamps_are_the_times_of_a_tables_versions_if_enabled(
    local_place: Place,
) -> None:
    local_place.write("a", rows(0))
    local_place.write("a", rows(1))
    with local_place.connect() as lake:
        switch = {"delta.enableInCommitTimestamps": "true"}
        lake.run(lambda txn: txn.alter("a", set_properties=switch))
        for number in range(2, 6):
            lake.run(lambda txn, number=number: txn.append("a", rows(number)))
        dated(local_place, "a", 0, 1, 1, 1, 1, 1, 1)
        table = lake.table("a")
        times = {kept.version: kept.timestamp for kept in table.versions()}
        own = {entry.version: entry.timestamp for entry in table.history()}
        assert {v: times[v] for v in range(2, 7)} == {v: own[v] for v in range(2, 7)}
        assert (times[0], times[1]) == (at(0), at(1))
        millisecond = timedelta(milliseconds=1)
        for version in range(2, 7):
            assert table.read(timestamp=times[version]).num_rows == max(2, version)
            before = table.read(timestamp=times[version] - millisecond)
            assert before.num_rows == max(2, version - 1)
        assert table.read(timestamp=at(0.5)).num_rows == 1


# -------------------------------------------------------------------- what is removed


def test_a_table_whose_old_log_entries_were_deleted_shows_the_versions_that_are_left(
    local_place: Place,
) -> None:
    local_place.write("a", rows(0), configuration={"delta.logRetentionDuration": "interval 0 days"})
    for number in range(1, 8):
        local_place.write("a", rows(number))
    dated(local_place, "a", *range(8))
    table = local_place.delta("a")
    local_place.delta("a", version=5).create_checkpoint()
    table.cleanup_metadata()
    for version in range(5):  # deltalake keeps the entries from its checkpoint on
        entry_of(local_place, "a", version).unlink(missing_ok=True)
    with local_place.connect() as lake:
        assert versions(lake.table("a")) == [7, 6, 5]
        assert lake.table("a").read(version=5).num_rows == 6
        before = contents(local_place.root)
        with pytest.raises(
            lv.VersionNotFound,
            match=r"table a has no version 3 any more: .*; those that are left are version 5 "
            r"\(.*Z\) to 7 \(.*Z\): request one of them",
        ):
            lake.table("a").read(version=3)
        with pytest.raises(lv.VersionNotFound, match=r"no version 8; .* version 5 .* to 7"):
            lake.table("a").read(version=8)
        assert contents(local_place.root) == before


def test_the_error_for_a_vacuumed_version_names_the_first_version_without_its_file(
    shared_place: Place,
) -> None:
    with shared_place.connect() as lake:
        lake.create_table("a", rows(1))
        lake.run(lambda txn: txn.append("a", rows(2)))
        lake.run(lambda txn: txn.delete("a", where="id = 1"))
        lake.run(lambda txn: txn.append("a", rows(3)))
        table = lake.table("a")
        last = versions(table)[0]
        (removed,) = {
            path
            for path in Path(shared_place.root, "a").rglob("*.parquet")
            if b"t1" in path.read_bytes()
        }
        removed.unlink()
        with pytest.raises(
            lv.VersionNotFound,
            match=rf"a can't be read at version {last - 2} any "
            rf"more: .*{removed.name} was removed.*versions {last - 1} to {last} do",
        ):
            table.read(version=last - 2)
        assert values(table.read(version=last - 1)) == [2]


def test_expired_iceberg_snapshots_are_not_listed_as_versions(
    request: pytest.FixtureRequest,
) -> None:
    place = make_place("iceberg", request)
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        for number in range(2, 5):
            lake.run(lambda txn, number=number: txn.append("a", rows(number)))
        lake.run(lambda txn: txn.overwrite("a", rows(9)))
        table = lake.table("a")
        first = table.versions()[-1]
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        left = table.versions()
        assert {kept.snapshot_id for kept in left} == {lake.table("a").snapshot_id}
        with pytest.raises(
            lv.VersionNotFound,
            match=rf"a has no version {first.version} any more: "
            rf".* snapshot expired; .* version {left[-1].version} .* to "
            rf"{left[0].version}",
        ):
            table.read(version=first.version)
        with pytest.raises(lv.VersionNotFound, match=rf"{first.snapshot_id}, or no longer"):
            table.read(iceberg_ref=first.snapshot_id)


def test_past_versions_of_a_dropped_table_are_refused(local_place: Place) -> None:
    local_place.write("a", rows(1))
    with local_place.connect() as lake:
        lake.run(lambda txn: txn.append("a", rows(2)))
        table = lake.table("a")
        lake.drop_table("a")
        for ask in (lambda: table.read(version=0), table.versions):
            with pytest.raises(lv.TableNotFound, match="dropped"):
                ask()


def test_past_versions_are_refused_if_another_client_recreated_the_table(
    local_place: Place,
) -> None:
    local_place.write("a", rows(1))
    with local_place.connect() as lake:
        lake.run(lambda txn: txn.append("a", rows(2)))
        table = lake.table("a")
    shutil.rmtree(local_place.uri("a"))
    local_place.write("a", rows(5))
    with local_place.connect() as other:
        table = dataclasses.replace(table, _client=inside(other).client)
        for ask in (lambda: table.read(version=0), table.versions):
            with pytest.raises(lv.TableNotFound, match="created again"):
                ask()


# -------------------------------------------------------------- Iceberg's own names


def test_iceberg_snapshots_branches_and_tags_are_read_by_iceberg_ref(
    request: pytest.FixtureRequest,
) -> None:
    place = make_place("iceberg", request)
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        lake.run(lambda txn: txn.append("a", rows(2)))
        second = lake.table("a").snapshot_id
        lake.run(lambda txn: txn.append("a", rows(3)))
        assert second is not None
        native = place.catalog().load_table(("a",))
        native.manage_snapshots().create_tag(second, "march").create_branch(second, "wip").commit()
        lake.run(lambda txn: txn.alter("a", add_columns=pa.schema([("more", pa.int64())])))
        table = lake.table("a")
        for ref in (second, str(second), "march"):
            shown = table.read(iceberg_ref=ref)
            assert (values(shown), shown.column_names) == ([1, 2], ["id", "tag"]), ref
        # The read has the columns that the branch's next snapshot would have.
        branch = table.read(iceberg_ref="wip")
        assert (values(branch), branch.column_names) == ([1, 2], ["id", "tag", "more"])
        assert in_order(table.read(iceberg_ref="main")) == in_order(table.read())
        with pytest.raises(
            lv.VersionNotFound, match=r"'april'.* tags are main, march, wip, its sn"
        ):
            table.read(iceberg_ref="april")
        with pytest.raises(lv.VersionNotFound, match=r"given as iceberg_ref="):
            table.read(version=second)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"version": -1}, "version must be a whole number"),
        ({"version": True}, "version must be a whole number"),
        ({"version": "1"}, "version must be a whole number"),
        ({"timestamp": "yesterday"}, "timestamp must be a time with a zone"),
        ({"timestamp": datetime(2026, 1, 1)}, "has no time zone"),
        ({"iceberg_ref": ""}, "iceberg_ref must be"),
        ({"iceberg_ref": 1.5}, "iceberg_ref must be"),
        ({"iceberg_ref": "main"}, "is a Delta table, which has no snapshot, branch or tag 'main'"),
        ({"version": 0, "timestamp": START}, "one of version, timestamp and iceberg_ref, not vers"),
    ],
)
def test_invalid_versions_timestamps_and_refs_are_refused(
    local_place: Place, asked: Mapping[str, Any], message: str
) -> None:
    local_place.write("a", rows(1))
    with local_place.connect() as lake, pytest.raises(lv.InvalidOperation, match=message):
        lake.table("a").read(**asked)


def test_an_iceberg_metadata_file_that_no_later_version_names_is_no_version_of_the_table(
    request: pytest.FixtureRequest,
) -> None:
    """Deleted metadata files free their numbers; a suspended writer may use one of them later."""
    place = make_place("iceberg", request)
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        for number in range(2, 7):
            lake.run(lambda txn, number=number: txn.append("a", rows(number)))
        table = lake.table("a")
        last = versions(table)[0]
        metadata = Path(place.root, "a", "metadata")
        newest = metadata / f"v{last + 1}.metadata.json"
        document = json.loads(newest.read_text())
        # The newest metadata-log names two files; the older one is gone.
        document["metadata-log"] = document["metadata-log"][-2:]
        newest.write_text(json.dumps(document))
        (metadata / f"v{last - 1}.metadata.json").unlink()
    with place.connect() as lake:
        table = lake.table("a")
        assert versions(table) == [last, last - 1]
        table.read(version=1)  # its own file shows that it led to the newest version
        stray = metadata / "v2.metadata.json"
        document = json.loads(stray.read_text())
        document["last-updated-ms"] += 1_000_000
        document["snapshot-log"][-1]["timestamp-ms"] += 1_000_000
        stray.write_text(json.dumps(document))
    with place.connect() as lake:
        table = lake.table("a")
        with pytest.raises(lv.VersionNotFound, match=rf"no version 1 any more.* {last - 1} .* to"):
            table.read(version=1)

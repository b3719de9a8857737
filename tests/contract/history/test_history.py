"""A lake's past: snapshots of its global versions, and the list of its commits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla_testing.histories.plan import small_limits
from tests.support.places import Place, make_place
from tests.support.stores import Later, interrupted, is_entry
from tests.support.tables import contents, in_order

State = dict[str, list[dict[str, Any]]]


@pytest.fixture(params=["local", "memory", "remote"])
def anywhere(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


@pytest.fixture(params=["leaves", "whole"])
def short_pages(request: pytest.FixtureRequest) -> Iterator[None]:
    """Move commits from HEAD to a page as soon as HEAD has more than six.

    Only pages of a map that HEAD holds ``whole`` describe the state after their commits.
    """
    with small_limits(True, whole=request.param == "whole"):
        yield


def state(snapshot: lv.Snapshot) -> State:
    return {name: in_order(snapshot.read(name)) for name in snapshot.versions}


def newest(lake: lv.Lake) -> int:
    return lake.history(1)[0].version


def record(lake: lv.Lake, seen: dict[int, State]) -> None:
    """Record what a snapshot of the newest global version shows."""
    with lake.snapshot() as now:
        seen[now.version] = state(now)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "tag": [f"t{i}" for i in ids]})


# ------------------------------------------------------------------- snapshots


def test_a_snapshot_of_any_version_shows_what_readers_saw_at_that_version(anywhere: Place) -> None:
    seen: dict[int, State] = {}
    with anywhere.connect() as lake:
        lake.create_table("a", rows(1, 2, 3))
        record(lake, seen)
        with lake.transaction() as txn:
            txn.update("a", {"tag": "'x'"}, where="id = 1")
            txn.create_table("b", rows(10))
        record(lake, seen)
        with lake.transaction(wait="decided") as txn:
            txn.append("b", rows(11))
        record(lake, seen)
        with lake.transaction() as txn:
            txn.append("a", rows(4))
            txn.delete("b", where="id = 10")
            txn.alter("b", add_columns=pa.schema([("more", pa.int64())]))
        record(lake, seen)
        lake.drop_table("a")
        record(lake, seen)
        lake.register("a")
        with lake.transaction() as txn:
            txn.delete("a", where="id = 4")
        record(lake, seen)
    with anywhere.connect() as other:
        assert other.snapshot(version=0).versions == {}
        for version, expected in seen.items():
            past = other.snapshot(version=version)
            assert past.version == version
            assert state(past) == expected, version
        assert other.snapshot(version=4).sql("SELECT count(*) AS n FROM a, b")["n"][0].as_py() == 4


def test_other_readers_get_the_rows_of_a_past_snapshot_at_its_table_version(place: Place) -> None:
    place.write("a", rows(1))
    with place.connect() as lake:
        for number in range(2, 6):
            with lake.transaction() as txn:
                txn.append("a", rows(number))
        for version in range(1, newest(lake) + 1):
            past = lake.snapshot(version=version)
            told = past.versions["a"]
            assert told.version is not None
            assert place.seen("a", told.version) == in_order(past.read("a"))


def test_snapshots_show_foreign_commits_from_the_version_that_absorbed_them(place: Place) -> None:
    place.write("a", rows(1))
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.append("a", rows(2))
        before = newest(lake)
        place.write("a", rows(3))
        place.write("a", rows(4))
        assert len(lake.snapshot().read("a")) == 4
        # The foreign commit has no global version yet.
        assert len(lake.snapshot(version=before).read("a")) == 2
        with lake.transaction() as txn:
            txn.append("a", rows(5))
        kinds = [entry.kind for entry in lake.history(2)]
        assert kinds == ["transaction", "foreign"]
        sizes = [len(lake.snapshot(version=before + n).read("a")) for n in range(3)]
        assert sizes == [2, 4, 5]


def test_a_past_snapshot_shows_an_unregistered_table_as_the_lake_knew_it(place: Place) -> None:
    place.write("a", rows(1))
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.append("a", rows(2))
        before = newest(lake)
        place.write("a", rows(3))  # never absorbed
        lake.unregister("a")
        assert lake.snapshot(version=before + 1).versions == {}
        assert [r["id"] for r in in_order(lake.snapshot(version=before).read("a"))] == [1, 2]


def test_past_snapshots_show_a_decided_commit_until_the_version_that_reconciles_it(
    place: Place,
) -> None:
    """Readers of the lake saw the decided commit, though another client made it unfit later."""
    place.write("bank", [{"id": i, "balance": 100} for i in range(3)])

    def foreign() -> None:
        with place.connect() as other:
            seen[other.snapshot().version] = state(other.snapshot())
        place.delta("bank").update({"balance": "balance + 1"}, predicate="id = 1")

    seen: dict[int, State] = {}
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 9, "balance": 9}])
        txn = lake.transaction()
        txn.update("bank", {"balance": "balance * 2"}, where="id = 0")
        with interrupted(lake, is_entry("bank"), foreign), pytest.raises(lv.ForeignConflict):
            txn.commit()
        record(lake, seen)
        assert [entry.kind for entry in lake.history(3)] == ["reconcile", "foreign", "transaction"]
    (decided, before), (last, after) = sorted(seen.items())
    assert last == decided + 2
    with place.connect() as lake:
        assert state(lake.snapshot(version=decided)) == before
        assert state(lake.snapshot(version=last)) == after
        # The foreign and the reconcile commit came to HEAD at once: no state lies between them.
        between = lake.snapshot(version=decided + 1)
        assert between.version == last
        assert state(between) == after
        # The changes are the difference of the two states: the replaced commit isn't repeated.
        told = lake.snapshot().changes("bank", decided, columns=["id", "balance"])
        assert {(r["id"], r["balance"], r["_change_type"]) for r in told.to_pylist()} == {
            (1, 100, "delete"),
            (1, 101, "insert"),
        }


def test_a_time_stands_for_the_newest_global_version_that_is_not_later(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        with lake.transaction() as txn:
            txn.append("a", rows(2))
        second, first = lake.history()
        millisecond = timedelta(milliseconds=1)
        assert lake.snapshot(timestamp=first.timestamp).version == 1
        assert lake.snapshot(timestamp=second.timestamp - millisecond).version == 1
        assert lake.snapshot(timestamp=second.timestamp).version == 2
        assert lake.snapshot(timestamp=second.timestamp).timestamp == second.timestamp
        assert lake.snapshot(timestamp=datetime.now(UTC) + timedelta(days=1)).version == 2
        with pytest.raises(lv.VersionNotFound, match="later time"):
            lake.snapshot(timestamp=first.timestamp - millisecond)
        with pytest.raises(lv.InvalidOperation, match="time zone"):
            lake.snapshot(timestamp=datetime(2026, 1, 1))
        with pytest.raises(lv.InvalidOperation, match="not both"):
            lake.snapshot(1, first.timestamp)


@pytest.mark.parametrize("version", [-1, True, "1", 1.0])
def test_a_snapshot_version_that_is_no_whole_number_is_refused(place: Place, version: Any) -> None:
    with place.connect() as lake, pytest.raises(lv.InvalidOperation, match="whole number"):
        lake.snapshot(version=version)


def test_a_snapshot_of_a_version_that_does_not_exist_yet_is_refused(place: Place) -> None:
    with place.connect() as lake:
        with pytest.raises(lv.VersionNotFound, match="no global version yet"):
            lake.snapshot(version=1)
        lake.create_table("a", rows(1))
        with pytest.raises(lv.VersionNotFound, match="newest is 1"):
            lake.snapshot(version=2)


def test_a_read_of_the_past_writes_nothing(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        with lake.transaction() as txn:
            txn.append("a", rows(2))
    before = contents(place.root)
    with place.connect() as lake:
        with lake.snapshot(version=1) as past:
            assert len(past.read("a")) == 1
            past.versions  # noqa: B018
            past.changes("a", 0)
            with pytest.raises(lv.InvalidOperation):
                past.sql("DELETE FROM a WHERE true")
        lake.history()
        lake.table("a").history()
    assert contents(place.root) == before


def test_snapshots_of_versions_that_moved_to_pages_can_be_read(
    place: Place, short_pages: None
) -> None:
    seen: dict[int, State] = {}
    with place.connect() as lake:
        lake.create_table("still", rows(0))
        lake.create_table("a", rows(0))
        for number in range(1, 16):
            with lake.transaction() as txn:
                txn.append("a", rows(number))
            record(lake, seen)
    with place.connect() as lake:
        assert len(list((Path(place.root) / "_lakevilla/pages").iterdir())) >= 3
        for version, expected in seen.items():
            assert state(lake.snapshot(version=version)) == expected
        assert [entry.version for entry in lake.history()] == list(range(17, 0, -1))
        assert [entry.version for entry in lake.history(9)] == list(range(17, 8, -1))
        for entry in lake.history():
            assert lake.snapshot(timestamp=entry.timestamp).version == entry.version


# ------------------------------------------------------------------ retention


def test_versions_whose_history_gc_deleted_raise_version_not_found(
    place: Place, short_pages: None
) -> None:
    clock = Later()
    seen: dict[int, State] = {}
    with place.connect() as lake:
        clock.of(lake)
        lake.create_table("still", rows(0))
        lake.create_table("a", rows(0))
        for number in range(1, 10):
            with lake.transaction() as txn:
                txn.append("a", rows(number))
        last = newest(lake)
        record(lake, seen)
        clock.ahead_seconds = 8 * 24 * 3600.0
        for number in range(20, 23):
            with lake.transaction() as txn:
                txn.append("a", rows(number))
            record(lake, seen)
        lake.gc()  # gc removes published commits from HEAD's pending list
        lake.gc()  # the next gc may then delete their history
        with pytest.raises(lv.VersionNotFound, match=f"begins with version {last}"):
            lake.snapshot(version=last - 1)
        with pytest.raises(lv.VersionNotFound, match=f"begins with version {last}"):
            lake.snapshot().changes("a", last - 1)
        assert [entry.version for entry in lake.history()] == [last + 3, last + 2, last + 1]
        assert len(lake.snapshot().changes("a", last)) == 3
    with place.connect() as lake:
        # The last commit that changed ``still`` isn't in the history any more.
        for version, expected in seen.items():
            assert state(lake.snapshot(version=version)) == expected


@pytest.mark.parametrize("commits", range(8, 13))
def test_the_first_version_that_is_kept_is_found_by_its_time(
    place: Place, short_pages: None, commits: int
) -> None:
    """The first version's commit may be the last one of a page that gc has deleted."""
    clock = Later()
    with place.connect() as lake:
        clock.of(lake)
        lake.create_table("a", rows(0))
        for number in range(1, commits):
            with lake.transaction() as txn:
                txn.append("a", rows(number))
        first, before, *_ = lake.history()
        clock.ahead_seconds = 8 * 24 * 3600.0
        for number in range(20, 24):
            with lake.transaction() as txn:
                txn.append("a", rows(number))
        lake.gc()
        lake.gc()
    with place.connect() as lake:
        assert lake.history()[-1].version == first.version + 1
        assert lake.snapshot(version=first.version).version == first.version
        for later in (0, 1, 1000):
            instant = first.timestamp + timedelta(milliseconds=later)
            assert lake.snapshot(timestamp=instant).version == first.version
        with pytest.raises(lv.VersionNotFound, match=f"the first is version {first.version};"):
            lake.snapshot(timestamp=before.timestamp)


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_a_version_whose_files_were_vacuumed_raises_version_not_found(
    kind: str, request: pytest.FixtureRequest
) -> None:
    anywhere = make_place(kind, request)
    with anywhere.connect() as lake:
        lake.create_table("a", rows(1, 2))
        with lake.transaction() as txn:
            txn.update("a", {"tag": "'x'"}, where="id = 1")
        kept = in_order(lake.snapshot().read("a"))
        anywhere.delta("a").vacuum(
            retention_hours=0, dry_run=False, enforce_retention_duration=False
        )
    with anywhere.connect() as lake:
        assert in_order(lake.snapshot(version=2).read("a")) == kept
        with pytest.raises(lv.VersionNotFound, match="global version 1: data file"):
            lake.snapshot(version=1).read("a")
        with pytest.raises(lv.VersionNotFound, match="global version 1: data file"):
            lake.snapshot(version=1).scan("a").read_all()
        with pytest.raises(lv.VersionNotFound, match="global version 1: data file"):
            lake.snapshot(version=1).sql("SELECT * FROM a")
        with pytest.raises(lv.VersionNotFound, match="was removed"):
            lake.snapshot().changes("a", 0)


def test_a_version_whose_log_entries_were_deleted_raises_version_not_found(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        lake.create_table("b", rows(1))
        for number in (2, 3, 4):
            with lake.transaction() as txn:
                txn.append("a", rows(number))
    place.delta("a").create_checkpoint()
    for version in (0, 1, 2):
        (Path(place.root) / f"a/_delta_log/{version:020}.json").unlink()
    with place.connect() as lake:
        assert len(lake.snapshot(version=5).read("a")) == 4
        past = lake.snapshot(version=3)
        with pytest.raises(lv.VersionNotFound, match="as of global version 3"):
            past.read("a")
        assert len(past.read("b")) == 1
        assert [entry.version for entry in lake.table("a").history()] == [3]


def test_past_snapshots_do_not_show_a_table_recreated_under_the_same_name(place: Place) -> None:
    with place.connect(settings=lv.Settings(reuse_after_seconds=0)) as lake:
        lake.create_table("a", rows(1))
        with lake.transaction() as txn:
            txn.append("a", rows(2))
        lake.drop_table("a", delete_data=True)
        lake.create_table("a", rows(7))
        for number in (8, 9):
            with lake.transaction() as txn:
                txn.append("a", rows(number))
        assert lake.snapshot(version=3).versions == {}
        for version in (1, 2):
            with pytest.raises(lv.VersionNotFound, match="id"):
                lake.snapshot(version=version).read("a")
        assert [r["id"] for r in in_order(lake.snapshot(version=4).read("a"))] == [7]


def test_the_error_for_a_missing_version_says_not_kept_only_once(place: Place) -> None:
    with place.connect(settings=lv.Settings(reuse_after_seconds=0)) as lake:
        lake.create_table("a", rows(1))
        for number in (2, 3):
            with lake.transaction() as txn:
                txn.append("a", rows(number))
        lake.drop_table("a", delete_data=True)
        with pytest.raises(lv.VersionNotFound) as told:
            lake.snapshot(version=3).read("a")
        assert told.value.message == (
            "table a is not kept as of global version 3: its log ends at version -1; "
            "request a newer version"
        )
        lake.create_table("a", rows(7))
        with pytest.raises(lv.VersionNotFound) as told:
            lake.snapshot(version=1).read("a")
        assert told.value.message.count("not kept") == 1
        assert told.value.message.count("request") == 1


def test_a_copied_lake_shows_its_past_since_its_adoption(place: Place, tmp_path: Path) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        with lake.transaction() as txn:
            txn.append("a", rows(2))
    copy = Place(str(tmp_path / "copy"))
    Path(place.root).rename(copy.root)
    with copy.connect() as lake:
        lake.doctor(adopt=True)
        with lake.transaction() as txn:
            txn.append("a", rows(3))
        assert [entry.version for entry in lake.history()] == [3, 2, 1]
        assert [r["id"] for r in in_order(lake.snapshot(version=2).read("a"))] == [1, 2]
        with pytest.raises(lv.VersionNotFound, match="adopted"):
            lake.snapshot(version=1)
        assert lake.snapshot().changes("a", 2)["id"].to_pylist() == [3]


# -------------------------------------------------------------------- history


def test_history_describes_each_commit(place: Place, tmp_path: Path) -> None:
    place.write("a", rows(1, 2))
    elsewhere = Place(str(tmp_path / "elsewhere"))
    elsewhere.write("b", rows(5))
    with place.connect() as lake:
        lake.register("sold", elsewhere.uri("b"))
        with lake.transaction(metadata={"job": "nightly"}) as txn:
            txn.update("a", {"tag": "'x'"}, where="id = 1")
            txn.append("sold", rows(6))
        place.write("a", rows(3))
        with lake.transaction() as txn:
            txn.delete("a", where="id = 3")
        deleted, foreign, both, registered = lake.history()
    assert [e.version for e in (deleted, foreign, both, registered)] == [4, 3, 2, 1]
    assert registered.kind == "register"
    assert registered.tables == ("sold",)
    assert both.kind == "transaction"
    assert both.tables == ("a", "sold")
    assert both.metadata == {"job": "nightly"}
    told = {done.table: done for done in both.operations}
    assert told["a"].operation == "UPDATE"
    assert told["a"].metrics["num_updated_rows"] == "1"
    assert told["sold"].operation == "WRITE"
    assert foreign.kind == "foreign"
    assert (foreign.txn_id, foreign.tables, foreign.operations) == (None, ("a",), ())
    assert deleted.txn_id == txn.id
    assert registered.timestamp < both.timestamp < foreign.timestamp < deleted.timestamp
    assert deleted.timestamp.tzinfo is UTC


def test_history_is_read_page_by_page(place: Place) -> None:
    place.write("a", rows(1))
    with place.connect() as lake:
        for number in range(5):
            lake.run(lambda txn, row=number: txn.append("a", rows(row)))
        lake.branch("night")
        lake.on("night").run(lambda txn: txn.append("a", rows(9)))
        lake.tag("monday", at=2)
        assert [entry.version for entry in lake.history(2, until=4)] == [4, 3]
        assert [entry.version for entry in lake.history(until=2)] == [2, 1]
        assert lake.history(1, until=99) == lake.history(1)
        assert lake.history(until=0) == []
        assert [entry.version for entry in lake.on("night").history(until=9)] == [6]
        assert [entry.version for entry in lake.on("monday").history(until=4)] == [2, 1]
        with pytest.raises(lv.InvalidOperation, match="until"):
            lake.history(until=-1)


def test_history_names_the_branch_that_a_commit_has_merged(place: Place) -> None:
    place.write("a", rows(1))
    with place.connect() as lake:
        lake.run(lambda txn: txn.append("a", rows(2)))
        lake.branch("night")
        lake.on("night").run(lambda txn: txn.append("a", rows(9)))
        merged = lake.merge("night")
        assert [entry.merged for entry in lake.history()] == [merged.merged, None]


def test_a_lake_without_commits_has_no_history(place: Place) -> None:
    place.write("a", rows(1))
    with place.connect() as lake:
        assert lake.history() == []
        assert lake.history(until=3) == []
        assert lake.snapshot().timestamp is None
        assert len(lake.table("a").history()) == 1


def test_a_tables_history_is_read_from_its_log(place: Place) -> None:
    place.write("a", rows(1))
    with place.connect() as lake:
        with lake.transaction(metadata={"job": "nightly"}) as txn:
            txn.update("a", {"tag": "'x'"}, where="id = 1")
        place.delta("a").delete("id = 1")
        for number in range(2, 9):
            with lake.transaction() as again:
                again.append("a", rows(number))
        table = lake.table("a")
        told = table.history()
        assert [entry.version for entry in table.history(3)] == [9, 8, 7]
        assert table.history(0) == []
    others = place.delta("a").history()
    assert [entry.operation for entry in told] == [entry["operation"] for entry in others]
    stamps = [int(entry.timestamp.timestamp() * 1000) for entry in told]
    assert stamps == [entry["timestamp"] for entry in others]
    assert [entry.version for entry in told] == list(range(9, -1, -1))
    update = told[-2]
    assert update.txn_ids == (txn.id,)
    assert update.metadata == {"job": "nightly"}
    assert update.parameters == {"predicate": "id = 1"}
    assert told[-1].txn_ids == ()


def test_user_metadata_of_other_writers_is_reported(place: Place) -> None:
    from deltalake import CommitProperties

    place.write("a", rows(1), commit_properties=CommitProperties(custom_metadata={"who": "me"}))
    with place.connect() as lake:
        assert lake.table("a").history()[0].metadata == {"who": "me"}


@pytest.mark.parametrize("limit", [-1, True, "2"])
def test_a_history_limit_that_is_no_whole_number_is_refused(place: Place, limit: Any) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        with pytest.raises(lv.InvalidOperation, match="limit"):
            lake.history(limit)
        with pytest.raises(lv.InvalidOperation, match="limit"):
            lake.table("a").history(limit)


# ---------------------------------------------------------------- command line


def run(*arguments: str, status: int = 0) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == status, result.output
    return json.loads(result.stdout) if result.stdout else json.loads(result.stderr)


def test_the_command_line_shows_past_versions(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        with lake.transaction(metadata={"job": "nightly"}) as txn:
            txn.append("a", rows(2))
        first = lake.history()[1]
    told = run("log", place.root)
    assert [entry["version"] for entry in told] == [2, 1]
    assert told[0]["operations"][0]["table"] == "a"
    assert run("log", place.root, "--limit", "1") == told[:1]
    assert [entry["version"] for entry in run("log", place.root, "--table", "a")] == [1, 0]
    shown = CliRunner().invoke(app, ["log", place.root]).stdout
    assert shown.splitlines()[0].endswith("WRITE a  +1  job=nightly")
    shown = CliRunner().invoke(app, ["log", place.root, "-v"]).stdout
    assert txn.id in shown
    assert "nightly" in shown
    shown = CliRunner().invoke(app, ["log", place.root, "--table", "a"]).stdout
    assert txn.id in shown
    assert "WRITE" in shown

    past = run("snapshot", place.root, "--version", "1")
    assert past["version"] == 1
    assert past["timestamp"] == first.timestamp.isoformat()
    assert past["tables"][0]["version"] == 0
    stamp = first.timestamp.isoformat()
    assert run("snapshot", place.root, "--timestamp", stamp) == past
    query = "SELECT count(*) AS n FROM a"
    assert run("sql", place.root, query) == [{"n": 2}]
    assert run("sql", place.root, query, "--version", "1") == [{"n": 1}]
    assert run("sql", place.root, query, "--timestamp", stamp) == [{"n": 1}]
    assert run("sql", place.root, query, "--version", "9", status=2)["error"] == "version_not_found"
    for bad in ("yesterday", "2026-01-01T00:00:00"):
        refused = run("sql", place.root, query, "--timestamp", bad, status=2)
        assert refused["error"] == "invalid_operation"
    refused = run("sql", place.root, "DELETE FROM a", "--write", "--version", "1", status=2)
    assert "--write" in refused["message"]


@pytest.mark.parametrize("limit", ["0", "-1"])
def test_the_command_line_refuses_a_limit_of_no_commits(place: Place, limit: str) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1))
    for table in ([], ["--table", "a"]):
        told = CliRunner().invoke(app, ["log", place.root, "--limit", limit, *table])
        assert told.exit_code == 2
        assert "no commits" not in told.output
        assert "1" in told.output

from __future__ import annotations

import json
import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakevilla.errors import CorruptObject, InvalidOperation
from lakevilla.formats.base import Change, CommitInfo, TableSnapshot
from lakevilla.formats.files import DataFile, DeletionVector, RemovedFile, removal
from lakevilla.formats.layout import TableAlteration
from tests.support.delta_by_hand import Tables, data_file

SCHEMA = pa.schema([("id", pa.int64())])
TIMES = {"delta.enableInCommitTimestamps": "true"}
ROWS = {"delta.enableRowTracking": "true"}


def rendered(
    tables: Tables, state: TableSnapshot, change: Change, at: int = 5, **info: Any
) -> list[Any]:
    ready = tables.prepare(state, change, CommitInfo("WRITE", **info), at)
    return [json.loads(line) for line in ready.body.splitlines()]


def only(actions: list[Any], name: str) -> list[Any]:
    return [action[name] for action in actions if name in action]


def test_commit_info_comes_first_and_has_the_transactions_and_the_operation(tables: Tables) -> None:
    state = tables.create(SCHEMA)
    actions = rendered(
        tables,
        state,
        Change(adds=(data_file("a"),)),
        parameters={"mode": "Append"},
        metrics={"numFiles": "1"},
        is_blind_append=True,
        txn_ids=("first", "second"),
        nonce="n",
        metadata={"job": "nightly"},
        applications={"lakevilla/1": 12},
    )
    info = actions[0]["commitInfo"]
    assert info["engineInfo"].startswith("LakeVilla")
    assert info["operationParameters"] == {"mode": "Append"}
    assert info["operationMetrics"] == {"numFiles": "1"}
    assert info["isBlindAppend"] is True
    assert info["txnId"] == "first"
    lines = len(actions)
    assert info["lakevilla"] == {"nonce": "n", "txns": ["first", "second"], "lines": lines}
    assert json.loads(info["userMetadata"]) == {"job": "nightly"}
    assert "inCommitTimestamp" not in info
    assert only(actions, "txn") == [{"appId": "lakevilla/1", "version": 12, "lastUpdated": 5}]


def test_a_removal_without_a_deletion_time_gets_the_time_of_the_entry(tables: Tables) -> None:
    state = tables.create(SCHEMA)
    change = Change(removes=(RemovedFile("a"), RemovedFile("b", deletion_timestamp=3)))
    times = [r["deletionTimestamp"] for r in only(rendered(tables, state, change, 77), "remove")]
    assert times == [77, 3]


def test_in_commit_timestamps_rise_even_if_the_clock_goes_back(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties=TIMES)
    stamps = [state.timestamp_ms]
    for clock in (1_000, 2_000_000_000_000, 500):
        state = tables.commit(state, Change(adds=(data_file(f"f{clock}"),)), timestamp_ms=clock)
        stamps.append(state.timestamp_ms)
    assert stamps == sorted(set(stamps))
    assert stamps[2] == 2_000_000_000_000
    assert stamps[3] == stamps[2] + 1
    assert tables.open().timestamp_ms == stamps[3]
    assert "delta.inCommitTimestampEnablementVersion" not in state.layout.properties


def test_turning_on_in_commit_timestamps_records_their_first_version(tables: Tables) -> None:
    state = tables.commit(tables.create(SCHEMA), Change(adds=(data_file("a"),)))
    state = tables.commit(
        state, tables.format.alter(state, TableAlteration(set_properties=TIMES)), timestamp_ms=9
    )
    assert state.layout.properties["delta.inCommitTimestampEnablementVersion"] == "2"
    stamp = state.layout.properties["delta.inCommitTimestampEnablementTimestamp"]
    assert int(stamp) == state.timestamp_ms > 9


def test_in_commit_timestamps_without_the_time_of_the_previous_entry_are_refused(
    tables: Tables,
) -> None:
    state = tables.create(SCHEMA, properties=TIMES)
    state = tables.commit(state, Change(adds=(data_file("a"),)))
    tables.run(tables.format.checkpoint(state))
    (tables.log() / f"{1:020}.json").unlink()
    with pytest.raises(CorruptObject, match="in-commit"):
        rendered(tables, tables.open(), Change())


SINCE = "delta.inCommitTimestampEnablementVersion"


def since(state: Any) -> str | None:
    return state.layout.properties.get(SINCE)


def switched(tables: Tables, state: Any, value: str) -> Change:
    wish = TableAlteration(set_properties={"delta.enableInCommitTimestamps": value})
    return tables.format.alter(state, wish)


def test_a_change_pending_behind_the_enabling_of_in_commit_timestamps_keeps_their_first_version(
    tables: Tables,
) -> None:
    state = tables.create(SCHEMA)
    first = switched(tables, state, "true")
    second = tables.format.alter(state.apply(first), TableAlteration(set_comments={"id": "key"}))
    assert second.metadata is not None
    assert SINCE not in second.metadata["configuration"]
    published = tables.commit(tables.commit(state, first), second)
    assert since(published) == "1"


def test_in_commit_timestamps_enabled_again_get_a_new_first_version(tables: Tables) -> None:
    state = tables.create(SCHEMA)
    was_on = state = tables.commit(state, switched(tables, state, "true"))
    state = tables.commit(state, switched(tables, state, "false"))
    assert since(state) is None
    restored = tables.format.redefine(state, was_on.metadata, was_on.protocol)
    assert since(tables.commit(state, restored)) == "3"


def test_restoring_a_definition_keeps_the_present_state_of_in_commit_timestamps(
    tables: Tables,
) -> None:
    first = state = tables.create(SCHEMA)
    for value in ("true", "false", "true"):
        state = tables.commit(state, switched(tables, state, value))
    assert since(state) == "3"
    earlier = tables.format.redefine(state, first.metadata, first.protocol)
    actions = rendered(tables, state, earlier)
    assert SINCE not in only(actions, "metaData")[0]["configuration"]
    commented = tables.format.alter(state, TableAlteration(set_comments={"id": "key"}))
    later = tables.commit(state, commented)
    change = tables.format.redefine(later, state.metadata, state.protocol)
    assert since(tables.commit(later, change)) == "3"


def test_the_first_in_commit_timestamp_is_later_than_the_file_time_of_the_entry_before(
    tables: Tables,
) -> None:
    state = tables.create(SCHEMA)
    ahead = 4_000_000_000.25
    os.utime(tables.log() / f"{0:020}.json", (ahead, ahead))
    state = tables.commit(state, switched(tables, state, "true"))
    assert state.timestamp_ms > ahead * 1000


def ids(tables: Tables, state: Any) -> dict[str, tuple[int, int]]:
    rows = tables.files(state).to_pylist()
    return {r["path"]: (r["base_row_id"], r["default_row_commit_version"]) for r in rows}


def test_row_ids_are_unique_and_continue_after_a_checkpoint(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties=ROWS)
    assert set(state.protocol["writerFeatures"]) >= {"rowTracking", "domainMetadata"}
    state = tables.commit(state, Change(adds=(data_file("a", rows=10), data_file("b", rows=5))))
    assert ids(tables, state) == {"a": (0, 1), "b": (10, 1)}
    tables.run(tables.format.checkpoint(state))
    state = tables.commit(tables.open(), Change(adds=(data_file("c", rows=2),)))
    assert ids(tables, state)["c"] == (15, 2)
    assert json.loads(state.domains["delta.rowTracking"]) == {"rowIdHighWaterMark": 16}


def test_a_file_that_is_removed_and_added_again_keeps_its_row_ids(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties=ROWS)
    state = tables.commit(state, Change(adds=(data_file("a", rows=10),)))
    (row,) = tables.files(state).to_pylist()
    old = DataFile("a", 100, 7, base_row_id=row["base_row_id"], default_row_commit_version=1)
    vector = DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 6)
    marked = data_file("a", rows=10, deletion_vector=vector)
    actions = rendered(tables, state, Change(adds=(marked,), removes=(removal(old),)))
    (again,) = only(actions, "add")
    assert (again["baseRowId"], again["defaultRowCommitVersion"]) == (0, 1)
    assert only(actions, "domainMetadata") == []
    assert actions[0]["commitInfo"]["tags"] == {"delta.rowTracking.preserved": "true"}


@pytest.mark.parametrize(
    ("base", "properties", "told"),
    [
        (3, ROWS, "true"),
        (None, ROWS, "false"),
        (3, {"delta.feature.rowTracking": "supported"}, "false"),
    ],
    ids=["", "unknown base", "not enabled"],
)
def test_a_rewrite_says_that_it_keeps_row_ids_if_it_could_know_them(
    tables: Tables, base: int | None, properties: dict[str, str], told: str
) -> None:
    state = tables.create(SCHEMA, properties=properties)
    old = DataFile("a", 100, 7, base_row_id=base, default_row_commit_version=base)
    actions = rendered(tables, state, Change(adds=(data_file("b"),), removes=(removal(old),)))
    assert actions[0]["commitInfo"]["tags"] == {"delta.rowTracking.preserved": told}


def test_files_of_another_table_keep_their_row_ids_and_new_ones_are_above(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties=ROWS)
    copied = data_file("a", rows=10, base_row_id=90)
    state = tables.commit(state, Change(adds=(data_file("b", rows=5), copied)))
    assert ids(tables, state) == {"a": (90, 1), "b": (100, 1)}
    assert json.loads(state.domains["delta.rowTracking"]) == {"rowIdHighWaterMark": 104}


def test_a_file_without_a_row_count_is_added_again_below_the_mark(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties=ROWS)
    state = tables.commit(state, Change(adds=(data_file("a", rows=10),)))
    again = DataFile("c", 100, 7, base_row_id=4, default_row_commit_version=1)
    assert ids(tables, tables.commit(state, Change(adds=(again,))))["c"] == (4, 1)
    above = DataFile("c", 100, 7, base_row_id=10, default_row_commit_version=1)
    with pytest.raises(InvalidOperation, match="row count"):
        rendered(tables, state, Change(adds=(above,)))


@pytest.mark.parametrize("part", ["RowId", "RowCommitVersion"])
def test_files_are_written_again_for_other_names_of_the_columns_of_row_ids(
    tables: Tables, part: str
) -> None:
    state = tables.create(SCHEMA, properties=ROWS)
    key = f"delta.rowTracking.materialized{part}ColumnName"
    other = {**state.metadata["configuration"], key: "x"}
    assert not state.keeps_contract({**state.metadata, "configuration": other})
    without = {name: text for name, text in other.items() if name != key}
    changed = state.apply(Change(metadata={**state.metadata, "configuration": without}))
    assert len(state.layout.lineage) == 2
    assert changed.layout.lineage == ()


def test_new_row_ids_of_a_copied_table_start_above_its_high_water_mark(tables: Tables) -> None:
    mark = json.dumps({"rowIdHighWaterMark": 99})
    domain = {"domain": "delta.rowTracking", "configuration": mark, "removed": False}
    state = tables.create(SCHEMA, properties=ROWS)
    state = tables.commit(state, Change(adds=(data_file("a", rows=10),), domains=(domain,)))
    assert ids(tables, state) == {"a": (100, 1)}
    assert json.loads(state.domains["delta.rowTracking"]) == {"rowIdHighWaterMark": 109}


def test_suspending_row_tracking_while_it_is_enabled_is_refused(tables: Tables) -> None:
    both = {**ROWS, "delta.rowTrackingSuspended": "true"}
    with pytest.raises(InvalidOperation, match="enableRowTracking = false first"):
        tables.create(SCHEMA, properties=both)
    state = tables.create(SCHEMA, properties=ROWS)
    suspend = TableAlteration(set_properties={"delta.rowTrackingSuspended": "true"})
    with pytest.raises(InvalidOperation, match="enableRowTracking = false first"):
        tables.format.alter(state, suspend)
    off = state.apply(
        tables.format.alter(
            state, TableAlteration(set_properties=both | {"delta.enableRowTracking": "false"})
        )
    )
    assert not off.definition.row_tracking
    with pytest.raises(InvalidOperation, match="only from its creation"):
        tables.format.alter(off, TableAlteration(set_properties=ROWS))


def test_a_table_with_row_tracking_both_enabled_and_suspended_gets_row_ids_and_can_be_repaired(
    tables: Tables,
) -> None:
    state = tables.create(SCHEMA, properties=ROWS)
    configuration = {**state.metadata["configuration"], "delta.rowTrackingSuspended": "true"}
    both = tables.commit(state, Change(metadata={**state.metadata, "configuration": configuration}))
    assert ids(tables, tables.commit(both, Change(adds=(data_file("a"),)))) == {"a": (0, 2)}
    off = {"delta.rowTrackingSuspended": "false"}
    assert tables.format.alter(both, TableAlteration(set_properties=off)).metadata is not None


def test_restoring_a_definition_does_not_turn_row_tracking_on_again(
    tables: Tables,
) -> None:
    was_on = tables.create(SCHEMA, properties=ROWS)
    off = {"delta.enableRowTracking": "false", "delta.rowTrackingSuspended": "true"}
    change = tables.format.alter(was_on, TableAlteration(set_properties=off))
    state = tables.commit(tables.commit(was_on, change), Change(adds=(data_file("a"),)))
    assert ids(tables, state) == {"a": (None, None)}
    earlier = tables.format.redefine(state, was_on.metadata, was_on.protocol)
    assert state.apply(earlier).layout.properties["delta.enableRowTracking"] == "false"


def test_row_tracking_refuses_files_without_row_counts(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties=ROWS)
    with pytest.raises(InvalidOperation, match="row count"):
        rendered(tables, state, Change(adds=(DataFile("a", 1, 1),)))


# ------------------------------------------------------------------- checkpoints


def checkpoint_rows(tables: Tables, version: int) -> list[dict[str, Any]]:
    file = tables.log() / f"{version:020}.checkpoint.parquet"
    return pq.read_table(file).to_pylist()


def test_a_checkpoint_drops_removals_that_are_past_their_retention(tables: Tables) -> None:
    properties = {"delta.deletedFileRetentionDuration": "interval 1 hour"}
    state = tables.create(SCHEMA, properties=properties)
    hour = 3_600_000
    state = tables.commit(state, Change(adds=tuple(data_file(n) for n in "abcd")))
    for number, name in enumerate("abc"):
        change = Change(removes=(removal(data_file(name)),))
        state = tables.commit(state, change, timestamp_ms=10 * hour + number * hour)
        tables.run(tables.format.checkpoint(state))
    gone = [row["remove"]["path"] for row in checkpoint_rows(tables, 4) if row["remove"]]
    assert gone == ["b", "c"]
    reopened = tables.commit(tables.open(), Change(adds=(data_file("e"),)), timestamp_ms=13 * hour)
    tables.run(tables.format.checkpoint(reopened))
    gone = [row["remove"]["path"] for row in checkpoint_rows(tables, 5) if row["remove"]]
    assert gone == ["c"]
    live = sorted(row["add"]["path"] for row in checkpoint_rows(tables, 5) if row["add"])
    assert live == ["d", "e"]


def test_a_checkpoint_never_replaces_an_existing_one(tables: Tables) -> None:
    state = tables.commit(tables.create(SCHEMA), Change(adds=(data_file("a"),)))
    file = tables.log() / f"{1:020}.checkpoint.parquet"
    file.write_bytes(b"theirs")
    tables.run(tables.format.checkpoint(state))
    assert file.read_bytes() == b"theirs"


def test_an_older_checkpoint_does_not_replace_the_last_checkpoint_hint(tables: Tables) -> None:
    old = tables.commit(tables.create(SCHEMA), Change(adds=(data_file("a"),)))
    new = tables.commit(old, Change(adds=(data_file("b"),)))
    tables.run(tables.format.checkpoint(new))
    tables.run(tables.format.checkpoint(old))
    assert json.loads((tables.log() / "_last_checkpoint").read_text())["version"] == 2


def test_a_checkpoint_is_due_by_the_tables_checkpoint_interval(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties={"delta.checkpointInterval": "3"})
    assert [v for v in range(10) if tables.format.checkpoint_due(v, state)] == [3, 6, 9]


@pytest.mark.parametrize(
    ("files", "interval"), [(1_270, 10), (1_280, 20), (1_600, 25), (3_200, 50), (6_400, 100)]
)
def test_the_interval_of_checkpoints_grows_with_the_checkpoint(
    tables: Tables, files: int, interval: int
) -> None:
    adds = tuple(data_file(f"{number}.parquet") for number in range(files))
    state = tables.commit(tables.create(SCHEMA), Change(adds=adds))
    tables.run(tables.format.checkpoint(state))
    opened = tables.open()
    due = [v for v in range(201) if tables.format.checkpoint_due(v, opened)]
    assert due == list(range(interval, 201, interval))
    own = TableAlteration(set_properties={"delta.checkpointInterval": "7"})
    wished = tables.commit(opened, tables.format.alter(opened, own))
    assert [v for v in range(20) if tables.format.checkpoint_due(v, wished)] == [7, 14]


def test_a_checkpoint_is_overdue_after_ten_versions_also_in_a_large_table(tables: Tables) -> None:
    adds = tuple(data_file(f"{number}.parquet") for number in range(2_000))
    state = tables.commit(tables.create(SCHEMA), Change(adds=adds))
    tables.run(tables.format.checkpoint(state))
    overdue = []
    for number in range(9):
        opened = tables.open()
        overdue.append(tables.format.checkpoint_overdue(opened))
        tables.commit(opened, Change(adds=(data_file(f"more{number}.parquet"),)))
    assert overdue == [False] * 9
    newest = tables.open()
    assert newest.version == 10
    assert tables.format.checkpoint_overdue(newest)
    assert not tables.format.checkpoint_due(newest.version, newest)


def test_a_checkpoint_with_statistics_only_as_columns_is_read_as_json_text(tables: Tables) -> None:
    schema = pa.schema([("p", pa.date32()), ("id", pa.int64()), ("d", pa.decimal128(9, 2))])
    properties = {
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpoint.writeStatsAsJson": "false",
    }
    state = tables.create(schema, partition_by=["p"], properties=properties)
    stats = {
        "numRecords": 3,
        "minValues": {"id": 1, "d": 1.25},
        "maxValues": {"id": 9, "d": 7.50},
        "nullCount": {"id": 0, "d": 1},
    }
    file = DataFile("a", 1, 1, {"p": "2024-02-03"}, json.dumps(stats))
    tables.run(tables.format.checkpoint(tables.commit(state, Change(adds=(file,)))))
    (row,) = [row["add"] for row in checkpoint_rows(tables, 1) if row["add"]]
    assert "stats" not in row
    assert str(row["partitionValues_parsed"]["p"]) == "2024-02-03"
    opened = tables.open()
    (text,) = tables.files(opened).column("stats").to_pylist()
    assert json.loads(text) == stats
    tables.run(tables.format.checkpoint(tables.commit(opened, Change(adds=(data_file("b"),)))))
    found = [row["add"]["stats_parsed"] for row in checkpoint_rows(tables, 2) if row["add"]]
    assert sorted(row["numRecords"] for row in found) == [1, 3]


def test_a_file_that_was_added_again_has_no_removal_in_a_checkpoint(tables: Tables) -> None:
    state = tables.commit(tables.create(SCHEMA), Change(adds=(data_file("a"), data_file("b"))))
    state = tables.commit(state, Change(removes=(removal(data_file("a")),)))
    first = tables.commit(state, Change(adds=(data_file("a"),)))
    tables.run(tables.format.checkpoint(first))
    assert [row["remove"] for row in checkpoint_rows(tables, 3) if row["remove"]] == []
    state = tables.commit(tables.open(), Change(removes=(removal(data_file("b")),)))
    tables.run(tables.format.checkpoint(state))
    state = tables.commit(tables.open(), Change(adds=(data_file("b"),)))
    tables.run(tables.format.checkpoint(state))
    assert [row["remove"] for row in checkpoint_rows(tables, 5) if row["remove"]] == []
    assert tables.paths(tables.open()) == ["a", "b"]

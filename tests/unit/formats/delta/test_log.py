from __future__ import annotations

import json
import random
import shutil
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakevilla.errors import (
    CorruptObject,
    LakeVillaError,
    TableNotFound,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.formats.base import Change
from lakevilla.formats.delta import DeltaFormat, log
from lakevilla.formats.delta.checkpoint import file_list
from lakevilla.formats.delta.checkpoint import reader as parts
from lakevilla.formats.files import DataFile, removal
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_predicate
from tests.support.delta_by_hand import (
    Tables,
    add,
    commit_info,
    data_file,
    metadata,
    protocol,
    remove,
)

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def test_opening_ten_commits_without_a_cache_takes_one_list_and_ten_gets_in_two_rounds(
    tables: Tables,
) -> None:
    tables.write_log(10)
    with tables.runner.requests.counting() as made:
        snapshot, rounds = tables.rounds(tables.format.open("t", "t"))
    assert (made.list, made.get, made.total, rounds) == (1, 10, 11, 2)
    assert snapshot.version == 9
    assert tables.paths(snapshot) == sorted(f"f{n}.parquet" for n in range(10))


def opened(tables: Tables, version: int | None, at_least: int) -> object:
    """Return what a client that has read nothing finds: a version and its files, or an error."""
    table_format = DeltaFormat()
    newest = version is None
    program = (
        table_format.open("t", "t", at_least=at_least)
        if newest
        else log.open_listed("t", "t", version, table_format._cache)
    )
    try:
        snapshot = tables.run(program)
    except LakeVillaError as error:
        return type(error), error.message
    return snapshot.version, tables.paths(snapshot)


@pytest.mark.parametrize("seed", range(16))
def test_a_part_of_the_log_shows_what_all_of_it_shows(
    tables: Tables, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other clients have written few checkpoints, and cleaned up, made anew or damaged the log."""
    draw = random.Random(seed)
    tables.write_log(30)
    for version in draw.sample(range(1, 30), draw.randrange(6)):
        state = tables.run(DeltaFormat().open_at("t", "t", version))
        tables.run(tables.format.checkpoint(state))
        (tables.log() / "_last_checkpoint").unlink()
    for version in range(draw.choice([0, 0, 5, 20])):
        (tables.log() / f"{version:020}.json").unlink()
    if draw.random() < 0.3:
        (tables.log() / f"{draw.randrange(30):020}.json").unlink(missing_ok=True)
    if draw.random() < 0.2:
        shutil.rmtree(tables.log())
        tables.write_log(4)
    for version in [None, 31, *draw.sample(range(31), 8)]:
        for at_least in (3, 15, 29) if version is None else (-1,):
            found = []
            for before in (2, 8, 1_000):
                monkeypatch.setattr(log, "_BEFORE", before)
                found.append(opened(tables, version, at_least))
            assert found[0] == found[1] == found[2], (version, at_least)


def test_opening_an_unchanged_cached_table_takes_one_get(tables: Tables) -> None:
    tables.write_log(3)
    known = tables.open()
    with tables.runner.requests.counting() as made:
        again = tables.open(cached=known)
    assert (made.get, made.total) == (1, 1)
    assert again.version == 2


def test_opening_a_cached_table_reads_each_new_entry_up_to_the_last(tables: Tables) -> None:
    tables.write_log(2)
    known = tables.open()
    tables.write_log(23)
    with tables.runner.requests.counting() as made:
        snapshot, rounds = tables.rounds(tables.format.open("t", "t", known))
    assert snapshot.version == 22
    assert len(tables.paths(snapshot)) == 23
    assert made.list == 0
    assert rounds <= 7


def test_opening_a_known_version_needs_no_list(tables: Tables) -> None:
    tables.write_log(6)
    with tables.runner.requests.counting() as made:
        snapshot = tables.run(tables.format.open_at("t", "t", 3))
    assert snapshot.version == 3
    assert len(tables.paths(snapshot)) == 4
    assert made.list == 0
    later = tables.run(tables.format.open_at("t", "t", 5, snapshot))
    assert len(tables.paths(later)) == 6
    assert tables.run(tables.format.open_at("t", "t", 5, later)) is later


def test_opening_an_older_version_than_the_cached_state_works(tables: Tables) -> None:
    tables.write_log(6)
    newest = tables.open()
    assert tables.run(tables.format.open_at("t", "t", 1, newest)).version == 1


@pytest.mark.parametrize("version", [-1, 6, 99])
def test_opening_a_version_that_does_not_exist_is_refused(tables: Tables, version: int) -> None:
    tables.write_log(6)
    with pytest.raises(VersionNotFound, match="t has no version"):
        tables.run(tables.format.open_at("t", "t", version))


def test_opening_a_version_removed_by_log_clean_up_is_refused(tables: Tables) -> None:
    snapshot = written(tables, 13)
    for version in range(10):
        (tables.log() / f"{version:020}.json").unlink()
    with pytest.raises(VersionNotFound, match="cleaned up"):
        tables.run(tables.format.open_at("t", "t", 4))
    assert tables.open().version == snapshot.version
    assert tables.run(tables.format.open_at("t", "t", 11)).version == 11


def test_opening_a_removed_version_above_a_remaining_old_checkpoint_is_refused(
    tables: Tables,
) -> None:
    """A checkpoint that was written late is younger than the entries above it, so clean-up
    leaves it.
    """
    snapshot = written(tables, 3)
    oldest = snapshot.version
    tables.run(tables.format.checkpoint(snapshot))
    for number in range(3, 9):
        snapshot = tables.commit(snapshot, Change(adds=(data_file(f"g{number}.parquet"),)))
    tables.run(tables.format.checkpoint(snapshot))
    for version in range(snapshot.version):
        (tables.log() / f"{version:020}.json").unlink()
    with pytest.raises(VersionNotFound, match=f"the log before version {snapshot.version} was"):
        tables.run(tables.format.open_at("t", "t", oldest + 2))
    assert tables.run(tables.format.open_at("t", "t", oldest)).version == oldest
    assert tables.open().version == snapshot.version


def test_opening_a_directory_without_a_log_raises_table_not_found(tables: Tables) -> None:
    (tables.root / "t").mkdir()
    (tables.root / "t" / "data.parquet").write_bytes(b"x")
    with pytest.raises(TableNotFound, match="directory that is not a table"):
        tables.open()
    with pytest.raises(TableNotFound):
        tables.run(tables.format.open_at("t", "t", 0))


def test_a_gap_in_the_log_is_reported_with_the_missing_entry(tables: Tables) -> None:
    tables.write_log(6)
    (tables.log() / f"{3:020}.json").unlink()
    with pytest.raises(CorruptObject, match="gap") as caught:
        tables.open()
    assert caught.value.key == f"t/_delta_log/{3:020}.json"


def test_a_cached_state_older_than_log_clean_up_is_not_used(tables: Tables) -> None:
    snapshot = written(tables, 2)
    known = tables.open()
    for number in range(2, 13):
        snapshot = tables.commit(snapshot, Change(adds=(data_file(f"g{number}.parquet"),)))
    tables.run(tables.format.checkpoint(snapshot))
    later = tables.commit(snapshot, Change(adds=(data_file("last.parquet"),)))
    for version in range(4, 13):
        (tables.log() / f"{version:020}.json").unlink()
    again = tables.run(tables.format.open_at("t", "t", later.version, known))
    assert tables.paths(again) == tables.paths(later)


def test_a_gap_after_the_cached_tip_makes_the_reader_list_the_log(tables: Tables) -> None:
    snapshot = written(tables, 3)
    known = tables.open()
    for number in range(3, 9):
        snapshot = tables.commit(snapshot, Change(adds=(data_file(f"g{number}.parquet"),)))
    tables.run(tables.format.checkpoint(snapshot))
    # Entries 4 and 6 exist, and 5 does not: a state in the middle of clean-up.
    (tables.log() / f"{5:020}.json").unlink()
    assert tables.paths(tables.open(cached=known)) == tables.paths(snapshot)


@pytest.mark.parametrize("body", [b"", b"{", b"[]\n", b'{"add": 3}\n', b"\xff\xfe\n", b"null\n"])
def test_a_malformed_log_entry_is_reported_with_its_key(tables: Tables, body: bytes) -> None:
    tables.write_log(3)
    (tables.log() / f"{1:020}.json").write_bytes(body)
    with pytest.raises(CorruptObject) as caught:
        tables.open()
    assert caught.value.key == f"t/_delta_log/{1:020}.json"
    with pytest.raises(CorruptObject):
        tables.entry(1)


def test_a_log_without_a_protocol_is_reported_as_corrupt(tables: Tables) -> None:
    tables.write_entry(0, metadata())
    with pytest.raises(CorruptObject, match="no protocol"):
        tables.open()


def test_reading_an_absent_entry_returns_none(tables: Tables) -> None:
    tables.write_log(1)
    assert tables.entry(1) is None


def test_unknown_actions_and_fields_are_ignored(tables: Tables) -> None:
    tables.write_entry(0, protocol(), metadata(), {"mystery": {"a": 1}}, add("a", novelty=[1]))
    assert tables.paths(tables.open()) == ["a"]


# ------------------------------------------------------------------- checkpoints


def written(tables: Tables, entries: int) -> Any:
    """A table of ``entries`` log entries, with a checkpoint where one is due."""
    snapshot = tables.create(pa.schema([("id", pa.int64())]))
    for number in range(1, entries):
        removes: tuple[Any, ...] = ()
        if number % 4 == 0:
            removes = (removal(tables.entry(number - 1).change.adds[0]),)
        change = Change(adds=(data_file(f"f{number}.parquet"),), removes=removes)
        snapshot = tables.commit(snapshot, change, timestamp_ms=1_700_000_000_000 + number)
        if tables.format.checkpoint_due(snapshot.version, snapshot):
            tables.run(tables.format.checkpoint(snapshot))
    return snapshot


def test_a_checkpoint_and_the_entries_after_it_are_read_in_two_rounds(tables: Tables) -> None:
    snapshot = written(tables, 14)
    with tables.runner.requests.counting() as made:
        opened, rounds = tables.rounds(tables.format.open("t", "t"))
    assert (made.list, made.get, rounds) == (1, 4, 2)
    assert tables.paths(opened) == tables.paths(snapshot)
    with tables.runner.requests.counting() as made:
        tables.open()
    assert made.get == 3, "the checkpoint is cached by its ETag"


def test_a_checkpoint_has_the_same_protocol_and_metadata_as_the_log(tables: Tables) -> None:
    snapshot = written(tables, 11)
    opened = tables.open()
    assert opened.checkpoint is not None
    assert opened.metadata == snapshot.metadata
    assert opened.protocol == snapshot.protocol


def test_a_table_created_again_below_the_last_checkpoint_seen_is_found(tables: Tables) -> None:
    written(tables, 12)
    tables.open()
    shutil.rmtree(tables.log())
    tables.write_log(3)
    assert tables.open().version == 2, "the table was created again below the checkpoint"


def test_parts_of_a_multi_part_checkpoint_are_read_as_one(tables: Tables) -> None:
    snapshot = written(tables, 12)
    classic = tables.log() / f"{10:020}.checkpoint.parquet"
    rows = pq.read_table(classic)
    (tables.log() / "_last_checkpoint").unlink()
    classic.unlink()
    for number in (1, 2, 3):
        part = rows.slice((number - 1) * 5, 5)
        name = f"{10:020}.checkpoint.{number:010}.{3:010}.parquet"
        pq.write_table(part, tables.log() / name)
    assert rows.num_rows <= 15
    for version in range(10):
        (tables.log() / f"{version:020}.json").unlink()
    assert tables.paths(tables.open()) == tables.paths(snapshot)
    (tables.log() / "_last_checkpoint").write_text(json.dumps({"version": 10, "parts": 3}))
    assert tables.paths(tables.run(tables.format.open_at("t", "t", 11))) == tables.paths(snapshot)
    (tables.log() / f"{10:020}.checkpoint.{2:010}.{3:010}.parquet").unlink()
    with pytest.raises(CorruptObject, match="gap"):
        tables.open()


@pytest.mark.parametrize("kind", ["json", "parquet", "inline"])
def test_v2_checkpoints_are_read_with_and_without_sidecars(tables: Tables, kind: str) -> None:
    snapshot = written(tables, 12)
    classic = tables.log() / f"{10:020}.checkpoint.parquet"
    rows = pq.read_table(classic)
    classic.unlink()
    (tables.log() / "_last_checkpoint").unlink()
    for version in range(10):
        (tables.log() / f"{version:020}.json").unlink()
    actions: list[dict[str, Any]] = [
        {"checkpointMetadata": {"version": 10}},
        protocol(["v2Checkpoint"], ["v2Checkpoint"]),
        metadata(),
        {"txn": {"appId": "a", "version": 4}},
        {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
    ]
    adds = [row["add"] for row in rows.select(["add"]).to_pylist() if row["add"]]
    adds = [{**a, "partitionValues": dict(a["partitionValues"])} for a in adds]
    if kind == "inline":
        actions.extend({"add": row} for row in adds)
    else:
        (tables.log() / "_sidecars").mkdir()
        for number, half in enumerate((rows.slice(0, 6), rows.slice(6))):
            file = tables.log() / "_sidecars" / f"s{number}.parquet"
            pq.write_table(half.select(["add", "remove"]), file)
            size = file.stat().st_size
            car = {"path": file.name, "sizeInBytes": size, "modificationTime": 1}
            actions.append({"sidecar": car})
    name = f"{10:020}.checkpoint.{UUID}.{'parquet' if kind == 'parquet' else 'json'}"
    if kind == "parquet":
        names = list(dict.fromkeys(key for action in actions for key in action))
        columns = {key: [action.get(key) for action in actions] for key in names}
        for row in columns["metaData"]:
            if row:
                row["configuration"], row["format"]["options"] = [("a", "b")], [("a", "b")]
        text = pa.map_(pa.string(), pa.string())
        layout = pa.struct([("provider", pa.string()), ("options", text)])
        meta = pa.struct(
            [
                ("id", pa.string()),
                ("format", layout),
                ("schemaString", pa.string()),
                ("partitionColumns", pa.list_(pa.string())),
                ("configuration", text),
                ("createdTime", pa.int64()),
            ]
        )
        arrays = {
            key: pa.array(values, meta if key == "metaData" else None)
            for key, values in columns.items()
        }
        pq.write_table(pa.table(arrays), tables.log() / name)
    else:
        (tables.log() / name).write_text("".join(json.dumps(a) + "\n" for a in actions))
    opened = tables.open()
    assert opened.version == 11
    assert opened.applications == {"a": 4}
    assert opened.domains == {"d": "{}"}
    assert tables.paths(opened) == tables.paths(snapshot)
    hint = {"version": 10, "size": 3, "v2Checkpoint": {"path": name, "sizeInBytes": 1}}
    (tables.log() / "_last_checkpoint").write_text(json.dumps(hint))
    with tables.runner.requests.counting() as made:
        at = tables.run(tables.format.open_at("t", "t", 11))
    assert made.list == 0
    assert tables.paths(at) == tables.paths(snapshot)


def test_a_log_compaction_is_read_in_place_of_its_entries(tables: Tables) -> None:
    tables.write_log(8)
    gone = [remove("f2.parquet"), {"txn": {"appId": "x", "version": 5}}]
    adds = [add(f"f{n}.parquet") for n in (1, 3, 4, 5)]
    text = "".join(json.dumps(a) + "\n" for a in [*gone, *adds])
    (tables.log() / f"{1:020}.{5:020}.compacted.json").write_text(text)
    with tables.runner.requests.counting() as made:
        snapshot = tables.open()
    assert made.get == 4, "0, the compaction, 6 and 7"
    assert "f2.parquet" not in tables.paths(snapshot)
    assert snapshot.application_version("x") == 5
    assert snapshot.timestamp_ms == 7


def test_a_wrong_or_truncated_last_checkpoint_hint_is_ignored(tables: Tables) -> None:
    snapshot = written(tables, 12)
    for text in ('{"ver', '{"version": 7}', '{"version": 10, "parts": 2}', '{"version": 99}'):
        (tables.log() / "_last_checkpoint").write_text(text)
        opened = tables.run(tables.format.open_at("t", "t", 11))
        assert tables.paths(opened) == tables.paths(snapshot)


@pytest.mark.parametrize("damage", ["cut", "footer", "pages", "empty"])
def test_a_malformed_checkpoint_is_reported_with_its_key(tables: Tables, damage: str) -> None:
    written(tables, 12)
    file = tables.log() / f"{10:020}.checkpoint.parquet"
    body = file.read_bytes()
    half = len(body) // 2
    damaged = {
        "cut": body[:-100],
        "footer": body[:half] + b"\0" * (len(body) - half - 8) + body[-8:],
        "pages": body[:4] + b"\0" * 600 + body[604:],
        "empty": b"",
    }
    file.write_bytes(damaged[damage])
    with pytest.raises(CorruptObject) as caught:
        tables.open()
    assert caught.value.key == f"t/_delta_log/{10:020}.checkpoint.parquet"


@pytest.mark.parametrize("entries_are_there", [True, False])
def test_the_advice_for_a_malformed_checkpoint_depends_on_the_log_entries_below_it(
    tables: Tables, entries_are_there: bool
) -> None:
    """Removing the checkpoint helps if the log below exists; otherwise the checkpoint is the
    last copy.
    """
    state = written(tables, 12)
    file = tables.log() / f"{10:020}.checkpoint.parquet"
    file.write_bytes(b"no parquet")
    if not entries_are_there:
        for version in range(10):
            (tables.log() / f"{version:020}.json").unlink()
    helps = "only where an older checkpoint or entry 0, and all log entries since, are still there"
    with pytest.raises(CorruptObject, match=f"restore it from a copy; .* {helps}"):
        tables.open()
    file.unlink()
    if entries_are_there:
        assert tables.paths(tables.open()) == tables.paths(state)
    else:
        with pytest.raises(CorruptObject, match="has a gap"):
            tables.open()


@pytest.mark.parametrize("round_bytes", [1, 1 << 30], ids=["by column", "by row group"])
def test_a_large_checkpoint_is_read_by_column_chunks(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, round_bytes: int
) -> None:
    monkeypatch.setattr(file_list, "_ROUND_BYTES", round_bytes)
    schema = pa.schema([("day", pa.int32()), ("id", pa.int64())])
    snapshot = tables.create(schema, partition_by=["day"])
    padding = "x" * 500

    def one(number: int) -> DataFile:
        day = number // 1_000
        stats = f'{{"numRecords":1,"minValues":{{"id":{number}}},"pad":"{padding}{number}"}}'
        return DataFile(f"f{number}.parquet", 1, 1, {"day": str(day)}, stats)

    adds = tuple(one(n) for n in range(3_000))
    snapshot = tables.commit(snapshot, Change(adds=adds))
    tables.run(tables.format.checkpoint(snapshot))
    file = tables.log() / f"{1:020}.checkpoint.parquet"
    pq.write_table(pq.read_table(file), file, row_group_size=200, compression="none")
    monkeypatch.setattr(parts, "FIRST_BYTES", 64)
    monkeypatch.setattr(parts, "_MERGE_GAP", 0)
    monkeypatch.setattr(file_list, "KEPT_FILES", 100)
    fetched: list[int] = []

    def watched(program: Any) -> Any:
        value = None
        while True:
            try:
                effect = program.send(value)
            except StopIteration as stop:
                return stop.value
            value = yield effect
            for answer in value if isinstance(value, list) else [value]:
                fetched.append(len(getattr(answer, "body", b"")))

    opened = tables.run(watched(tables.format.open("t", "t")))
    where = bind(parse_predicate("day = 1"), schema)
    files = tables.run(watched(opened.files(where)))
    assert files.num_rows == 1_000
    assert files.column("stats")[0].as_py() == one(1_000).stats
    assert sum(fetched) < file.stat().st_size * 0.5, "statistics of one partition in three"
    assert files.sort_by("path").equals(tables.files(snapshot, where).sort_by("path"))
    assert tables.run(opened.missing([("f3.parquet", None), ("no", None)])) == [("no", None)]


def test_a_table_with_an_unsupported_reader_feature_is_refused(tables: Tables) -> None:
    tables.write_log(2)
    tables.write_entry(2, protocol(["variantShredding"], ["variantShredding"]))
    known = tables.run(tables.format.open_at("t", "t", 1))
    with pytest.raises(UnsupportedTableFeature, match="variantShredding"):
        tables.open()
    with pytest.raises(UnsupportedTableFeature, match="variantShredding"):
        tables.open(cached=known)


def test_the_in_commit_timestamp_of_a_checkpointed_tip_is_read_from_its_log_entry(
    tables: Tables,
) -> None:
    properties = {"delta.enableInCommitTimestamps": "true", "delta.checkpointInterval": "1"}
    snapshot = tables.create(pa.schema([("id", pa.int64())]), properties=properties)
    snapshot = tables.commit(snapshot, Change(adds=(data_file("a"),)), timestamp_ms=5_000_000)
    tables.run(tables.format.checkpoint(snapshot))
    assert snapshot.timestamp_ms is not None
    assert tables.open().timestamp_ms == snapshot.timestamp_ms


def test_an_entry_has_the_contents_of_its_commit_info(tables: Tables) -> None:
    tables.write_entry(0, protocol(), metadata())
    own = {"nonce": "n", "txns": ["a", "b"]}
    tables.write_entry(1, commit_info(5, isBlindAppend=True, lakevilla=own), add("f"))
    entry = tables.entry(1)
    assert (entry.txn_ids, entry.nonce, entry.is_blind_append) == (("a", "b"), "n", True)
    assert (entry.operation, entry.timestamp_ms) == ("WRITE", 5)

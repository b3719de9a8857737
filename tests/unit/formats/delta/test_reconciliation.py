"""One file, one action: what counts if a log names a path and its deletion vector more than
once.

Hazard 37: of a file that a compaction named twice, rows were read twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from lakevilla.errors import CorruptObject
from lakevilla.formats.base import Change
from lakevilla.formats.delta import DeltaFormat
from lakevilla.formats.files import all_differ, removal
from tests.support.delta_by_hand import (
    Tables,
    add,
    commit_info,
    data_file,
    metadata,
    protocol,
    remove,
)

FEATURES = protocol(["deletionVectors"], ["deletionVectors"])


def vector(number: int) -> dict[str, Any]:
    return {
        "storageType": "u",
        "pathOrInlineDv": f"ab^-aqEH.-t@S}}K{{vb[*k{number}",
        "offset": number,
        "sizeInBytes": 34,
        "cardinality": 1,
    }


def compaction(tables: Tables, first: int, last: int, *actions: Mapping[str, Any]) -> Path:
    path = tables.log() / f"{first:020}.{last:020}.compacted.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return path


def refs(tables: Tables, state: Any) -> list[tuple[str, str | None]]:
    files = tables.files(state)
    pairs = zip(files["path"].to_pylist(), files["dv_id"].to_pylist(), strict=True)
    return sorted(pairs, key=repr)


# -- compactions ---------------------------------------------------------------------------


def rewritten(tables: Tables, times: int = 6) -> None:
    """Make a log of entries that each replace the only file of the one before, and one entry
    after them.
    """
    tables.write_entry(0, FEATURES, metadata(), add("f0.parquet"))
    for version in range(1, times + 1):
        old, new = f"f{version - 1}.parquet", f"f{version}.parquet"
        tables.write_entry(version, commit_info(version), remove(old), add(new))
    tables.write_entry(times + 1, commit_info(times + 1))


@pytest.mark.parametrize("first", [0, 1])
def test_a_compaction_that_names_files_twice_is_ignored(tables: Tables, first: int) -> None:
    """Such a compaction is a concatenation of entries: it adds and removes each file but the
    last.
    """
    rewritten(tables)
    bodies = [(tables.log() / f"{n:020}.json").read_text() for n in range(first, 7)]
    (tables.log() / f"{first:020}.{6:020}.compacted.json").write_text("".join(bodies))
    assert tables.paths(tables.open()) == ["f6.parquet"]


SUM = [remove("f0.parquet"), add("f1.parquet")]


@pytest.mark.parametrize(
    "actions",
    [
        [*SUM, add("f1.parquet")],
        [*SUM, remove("f0.parquet")],
        [*SUM, remove("f1.parquet")],
        [*SUM, add("f1.parquet", deletionVector=vector(1))],
        [*SUM, {"txn": {"appId": "a", "version": 9}}, {"txn": {"appId": "a", "version": 8}}],
        [*SUM, metadata(a="1"), metadata(a="2")],
        [*SUM, FEATURES, protocol()],
        [
            *SUM,
            {"domainMetadata": {"domain": "d", "configuration": "1", "removed": False}},
            {"domainMetadata": {"domain": "d", "configuration": "2", "removed": False}},
        ],
        [],
        [{"add": {"path": 5}}],
    ],
    ids=[
        "an add", "a removal", "both", "two vectors", "an application", "metadata", "protocol",
        "a domain", "nothing", "no action",
    ],
)  # fmt: skip
def test_a_compaction_that_is_not_the_sum_of_its_entries_is_ignored(
    tables: Tables, actions: list[Any]
) -> None:
    rewritten(tables, 2)
    compaction(tables, 1, 2, *actions)
    state = tables.open()
    assert tables.paths(state) == ["f2.parquet"]
    assert (state.applications, state.domains, state.layout.properties) == ({}, {}, {})


def test_a_compaction_may_remove_a_path_with_several_deletion_vectors(tables: Tables) -> None:
    tables.write_entry(0, FEATURES, metadata(), add("f.parquet"))
    tables.write_entry(1, remove("f.parquet"), add("f.parquet", deletionVector=vector(1)))
    gone = remove("f.parquet", deletionVector=vector(1))
    new = add("f.parquet", deletionVector=vector(2))
    tables.write_entry(2, gone, new)
    tables.write_entry(3, commit_info(3))
    compaction(tables, 1, 2, remove("f.parquet"), gone, new)
    with tables.runner.requests.counting() as made:
        state = tables.open()
    assert made.get == 3, "0, the compaction and 3"
    assert [deletes[-2:] for _, deletes in refs(tables, state) if deletes] == ["@2"]


# -- entries -------------------------------------------------------------------------------


def test_a_file_that_an_entry_adds_twice_counts_once(tables: Tables) -> None:
    twice = add("f1.parquet", stats='{"numRecords":2}')
    tables.write_entry(0, protocol(), metadata(), add("f1.parquet"), twice)
    assert tables.paths(tables.open()) == ["f1.parquet"]
    assert len(tables.entry(0).change.adds) == 1


@pytest.mark.parametrize(
    "actions",
    [
        [add("f0.parquet"), remove("f0.parquet")],
        [remove("f0.parquet"), add("f0.parquet")],
        [add("g.parquet"), add("g.parquet", deletionVector=vector(1))],
    ],
    ids=["added, removed", "removed, added", "two vectors"],
)
def test_an_entry_with_contradictory_actions_on_a_file_is_refused(
    tables: Tables, actions: list[Any]
) -> None:
    """Spark takes the last action of such an entry, delta-kernel the first."""
    tables.write_entry(0, FEATURES, metadata(), add("f0.parquet"))
    known = tables.open()
    tables.write_entry(1, commit_info(1), *actions)
    for cached in (None, known):
        with pytest.raises(CorruptObject, match="no valid delta log entry") as raised:
            tables.open(cached=cached)
        assert raised.value.key == f"t/_delta_log/{1:020}.json"


V1, V2 = vector(1), vector(2)


@pytest.mark.parametrize(
    ("opens", "settles", "left"),
    [
        ([remove("f"), add("f")], [remove("f")], []),
        ([add("f"), remove("f")], [add("f")], ["f"]),
        ([add("f"), remove("f")], [add("f", deletionVector=V1)], ["f"]),
        (
            [add("f", deletionVector=V1), add("f", deletionVector=V2)],
            [remove("f", deletionVector=V1), remove("f", deletionVector=V2)],
            [],
        ),
        ([add("f", deletionVector=V1), add("f", deletionVector=V2)], [add("f")], ["f"]),
        ([add("f"), remove("f"), metadata(a="1")], [remove("f"), add("g")], ["g"]),
    ],
)
@pytest.mark.parametrize("warm", [False, True])
def test_contradictory_actions_on_a_file_are_accepted_once_a_later_entry_replaces_them(
    tables: Tables, opens: list[Any], settles: list[Any], left: list[str], warm: bool
) -> None:
    """Spark, delta-kernel and DuckDB read the log so."""
    tables.write_entry(0, FEATURES, metadata(), add("h"))
    known = tables.open() if warm else None
    tables.write_entry(1, commit_info(1), *opens)
    tables.write_entry(2, commit_info(2), add("k"))
    with pytest.raises(CorruptObject, match="no valid delta log entry"):
        tables.open(cached=known)
    tables.write_entry(3, commit_info(3), *settles)
    state = tables.open(cached=known)
    assert tables.paths(state) == sorted(["h", "k", *left])
    tables.run(tables.format.checkpoint(state))
    tables.format = DeltaFormat()
    assert tables.paths(tables.open()) == sorted(["h", "k", *left])
    assert "f" in tables.run(tables.format.named_in_log(state)), "its data is kept"


@pytest.mark.parametrize(
    "then", [[remove("f", deletionVector=V1)], [add("g")], [remove("g")], [commit_info(2)]]
)
def test_contradictory_actions_on_a_file_stay_refused_after_entries_that_do_not_replace_them(
    tables: Tables, then: list[Any]
) -> None:
    tables.write_entry(0, FEATURES, metadata())
    tables.write_entry(1, add("f", deletionVector=V1), add("f", deletionVector=V2))
    tables.write_entry(2, *then)
    with pytest.raises(CorruptObject, match="the file f is added with two vectors"):
        tables.open()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_newest_action_on_a_path_decides_its_file(tables: Tables, checkpoint: bool) -> None:
    """A file that gets a deletion vector without a removal of its earlier form is read once."""
    tables.write_entry(0, FEATURES, metadata(), add("f.parquet"), add("g.parquet"))
    state = _advanced(tables)
    if checkpoint:
        tables.run(tables.format.checkpoint(state))
        tables.format = DeltaFormat()
    tables.write_entry(2, commit_info(2), add("f.parquet", deletionVector=vector(1)))
    state = tables.open()
    first, second = refs(tables, state)
    assert (first[0], second) == ("f.parquet", ("g.parquet", None))
    assert first[1] is not None
    missing = tables.run(state.missing([("f.parquet", None), first, second]))
    assert missing == [("f.parquet", None)]
    tables.run(tables.format.checkpoint(state))
    tables.format = DeltaFormat()
    assert refs(tables, tables.open()) == [first, second]


def _advanced(tables: Tables) -> Any:
    tables.write_entry(1, commit_info(1))
    return tables.open()


# -- checkpoints ---------------------------------------------------------------------------


def parts(tables: Tables, *lists: list[dict[str, Any]]) -> None:
    """Make a checkpoint of version 1 in several parts, each with these files."""
    tables.write_entry(0, FEATURES, metadata())
    state = _advanced(tables)
    adds = tuple(data_file(f"x{n}.parquet") for n in range(2))
    state = tables.commit(state, Change(adds=adds))
    tables.run(tables.format.checkpoint(state))
    name = f"{2:020}.checkpoint"
    whole = pq.read_table(tables.log() / f"{name}.parquet")
    (tables.log() / f"{name}.parquet").unlink()
    (tables.log() / "_last_checkpoint").unlink()
    small = whole.filter(pc.is_null(whole["add"]))
    kind = whole.schema.field("add").type
    for number, files in enumerate(lists, 1):
        rows = pa.array([file["add"] for file in files], kind)
        columns = [
            rows if field.name == "add" else pa.nulls(len(files), field.type)
            for field in whole.schema
        ]
        part = pa.Table.from_arrays(columns, schema=whole.schema)
        if number == 1:
            part = pa.concat_tables([small, part])
        pq.write_table(part, tables.log() / f"{name}.{number:010}.{len(lists):010}.parquet")
    for version in range(3):
        (tables.log() / f"{version:020}.json").unlink()
    tables.format = DeltaFormat()


def row(path: str, **fields: Any) -> dict[str, Any]:
    action = add(path, **fields)
    return {"add": {**action["add"], "partitionValues": []}}


def test_a_file_that_two_parts_of_a_checkpoint_name_counts_once(tables: Tables) -> None:
    several = [row(f"f{n}.parquet") for n in range(5)]
    parts(tables, several, [row("f3.parquet"), row("g.parquet"), row("f0.parquet")])
    expected = [*(f"f{n}.parquet" for n in range(5)), "g.parquet"]
    assert tables.paths(tables.open()) == expected


def test_a_checkpoint_with_two_deletion_vectors_for_a_path_is_refused_with_its_key(
    tables: Tables,
) -> None:
    parts(tables, [row("f.parquet")], [row("f.parquet", deletionVector=vector(1))])
    with pytest.raises(CorruptObject, match=r"f\.parquet with two deletion vectors") as raised:
        tables.paths(tables.open())
    assert raised.value.key is not None
    assert "checkpoint" in raised.value.key


def test_checkpoints_keep_the_removals_of_a_path_that_was_added_again(tables: Tables) -> None:
    """VACUUM of other clients spares the vectors of removals: older states may still be read."""
    now = 1_700_000_000_000
    tables.write_entry(0, FEATURES, metadata(), add("f.parquet", deletionVector=vector(1)))
    new = add("f.parquet", deletionVector=vector(2))
    old = remove("f.parquet", deletionVector=vector(1), deletionTimestamp=now)
    tables.write_entry(1, commit_info(now), old, new)
    tables.run(tables.format.checkpoint(tables.open()))
    newest = add("f.parquet", deletionVector=vector(3))
    old = remove("f.parquet", deletionVector=vector(2), deletionTimestamp=now)
    tables.write_entry(2, commit_info(now), old, newest)
    tables.format = DeltaFormat()
    state = tables.open()
    tables.run(tables.format.checkpoint(state))
    kept = pq.read_table(tables.log() / f"{2:020}.checkpoint.parquet")["remove"]
    offsets = [it["deletionVector"]["offset"] for it in kept.to_pylist() if it is not None]
    assert sorted(offsets) == [1, 2]


def test_a_file_removed_and_added_by_pending_changes_stays_in_the_state(tables: Tables) -> None:
    """Changes laid over a state are no log entry yet: the last one, which adds the file, counts."""
    state = tables.create(pa.schema([("id", pa.int64())]))
    file = data_file("f.parquet")
    state = tables.commit(state, Change(adds=(file,)))
    above = state.apply(Change(removes=(removal(file),))).apply(Change(adds=(file,)))
    assert tables.paths(above) == ["f.parquet"]


# -- telling whether paths repeat ----------------------------------------------------------


@given(st.lists(st.lists(st.text(max_size=20), max_size=6), max_size=4), st.booleans())
def test_all_differ_finds_equal_texts_in_any_chunk_and_at_any_offset(
    chunks: list[list[str]], long: bool
) -> None:
    if long:
        chunks = [[f"{text}/longer than a word" for text in chunk] for chunk in chunks]
    texts = [text for chunk in chunks for text in chunk]
    padded = [pa.array(["unseen", *chunk, "unseen"], pa.string())[1:-1] for chunk in chunks]
    column = pa.chunked_array(padded, pa.string())
    assert all_differ(column) == (len(set(texts)) == len(texts))


# -- spellings of an absolute path ---------------------------------------------------------

SPELLINGS = {
    "local": [
        "/away/a%20t/f.parquet",
        "file:/away/a%20t/f.parquet",
        "file:///away/a%20t/f.parquet",
    ],
    "plain": ["/away/f.parquet", "file:/away/f.parquet", "file:///away/f.parquet"],
    "s3": ["s3://away/f.parquet", "s3a://away/f.parquet", "s3n://away/f.parquet"],
    "azure": [f"{scheme}://c@a.dfs.core.windows.net/f.parquet" for scheme in ("abfss", "abfs")],
}


@pytest.mark.parametrize("kind", SPELLINGS)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_removal_finds_its_file_whatever_the_spelling_of_the_path(
    tables: Tables, kind: str, checkpointed: bool
) -> None:
    """Spark writes absolute URIs in removals; the log has paths as they were added."""
    for number, added in enumerate(SPELLINGS[kind]):
        for other, removed in enumerate(SPELLINGS[kind]):
            name = f"t{number}{other}"
            tables.write_entry(
                0, protocol(), metadata(), add("kept.parquet"), add(added), name=name
            )
            if checkpointed:
                DeltaTable(str(tables.log(name).parent)).create_checkpoint()
            tables.write_entry(1, remove(removed), name=name)
            assert tables.paths(tables.open(name)) == ["kept.parquet"]

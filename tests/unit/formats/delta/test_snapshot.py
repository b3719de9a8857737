from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Change, CommitInfo
from lakevilla.formats.files import (
    FILES_SCHEMA,
    DataFile,
    DeletionVector,
    RemovedFile,
    data_files,
    removal,
)
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_predicate
from tests.support.delta_by_hand import Tables, data_file, field, metadata
from tests.support.search import how_many

SCHEMA = pa.schema([("id", pa.int64())])


def test_applying_changes_leaves_the_version_and_the_original_state_unchanged(
    tables: Tables,
) -> None:
    base = tables.commit(tables.create(SCHEMA), Change(adds=(data_file("a"), data_file("b"))))
    change = Change(adds=(data_file("c"),), removes=(removal(data_file("a")),))
    above = base.apply(change).apply(Change(removes=(removal(data_file("b")),)))
    assert tables.paths(above) == ["c"]
    assert tables.paths(base) == ["a", "b"]
    assert above.version == base.version == 1


def test_a_changed_schema_gives_a_new_layout(tables: Tables) -> None:
    base = tables.create(SCHEMA)
    wider = metadata([field("id"), field("name", "string")], delta__appendOnly="true")
    above = base.apply(Change(metadata=wider["metaData"]))
    assert above.layout.schema.names == ["id", "name"]
    assert above.append_only
    assert base.layout.schema.names == ["id"]
    assert not base.append_only
    assert above.apply(Change(adds=(data_file("x"),))).layout is above.layout


def test_a_file_with_a_new_deletion_vector_counts_as_another_file(tables: Tables) -> None:
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 4)
    base = tables.commit(tables.create(SCHEMA), Change(adds=(data_file("a"),)))
    marked = data_file("a", deletion_vector=vector)
    above = base.apply(Change(adds=(marked,), removes=(removal(data_file("a")),)))
    files = tables.files(above)
    assert files.column("dv_id").to_pylist() == ["uab^-aqEH.-t@S}K{vb[*k^@4"]
    refs = [("a", None), marked.ref]
    assert tables.run(above.missing(refs)) == [("a", None)]
    assert tables.run(base.missing(refs)) == [marked.ref]
    assert data_files(files) == [marked]


def test_a_file_added_again_has_its_newest_statistics(tables: Tables) -> None:
    base = tables.commit(tables.create(SCHEMA), Change(adds=(data_file("a", rows=1),)))
    above = base.apply(Change(adds=(data_file("a", rows=9),)))
    assert tables.files(above).column("stats").to_pylist() == ['{"numRecords": 9}']


def test_an_entry_that_does_not_follow_the_state_is_refused(tables: Tables) -> None:
    base = tables.create(SCHEMA)
    entry = tables.entry(0)
    with pytest.raises(InvalidOperation, match="does not follow"):
        tables.format.advance(base, entry)


def test_application_versions_are_read_from_the_log(tables: Tables) -> None:
    base = tables.create(SCHEMA)
    assert base.application_version("lake") is None
    info = CommitInfo("WRITE", applications={"lake": 7})
    assert tables.commit(base, Change(), info).application_version("lake") == 7
    assert tables.open().application_version("lake") == 7


def test_a_state_with_pending_changes_is_not_used_as_a_cached_tip(tables: Tables) -> None:
    base = tables.create(SCHEMA)
    above = base.apply(Change(adds=(data_file("ghost"),)))
    assert tables.paths(tables.open(cached=above)) == []
    with pytest.raises(InvalidOperation):
        tables.run(tables.format.checkpoint(above))


def test_a_blank_table_has_no_files(tables: Tables) -> None:
    blank = tables.format.blank("t", "t")
    assert tables.files(blank).schema == FILES_SCHEMA
    assert tables.run(blank.missing([("a", None)])) == [("a", None)]
    assert blank.version == -1
    blank.check_writable()


def test_files_are_pruned_in_the_same_way_before_and_after_a_checkpoint(tables: Tables) -> None:
    schema = pa.schema([("p", pa.string()), ("id", pa.int64())])
    state = tables.create(schema, partition_by=["p"])

    def one(name: str, p: str, low: int, high: int) -> DataFile:
        bounds = f'"minValues":{{"id":{low}}},"maxValues":{{"id":{high}}},"nullCount":{{"id":0}}'
        return DataFile(name, 1, 1, {"p": p}, f'{{"numRecords":5,{bounds}}}')

    state = tables.commit(state, Change(adds=(one("a", "x", 0, 9), one("b", "x", 10, 19))))
    tables.run(tables.format.checkpoint(state))
    tables.commit(state, Change(adds=(one("c", "y", 0, 9), one("d", "x", 5, 15))))
    opened = tables.open()
    assert opened.checkpoint is not None
    where = bind(parse_predicate("p = 'x' and id > 12"), schema)
    assert tables.paths(opened, where) == ["b", "d"]
    assert tables.paths(opened) == ["a", "b", "c", "d"]


NAMES = st.sampled_from([f"f{n}" for n in range(6)])
STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove", "checkpoint", "open"]), NAMES))


@given(STEPS)
@settings(
    max_examples=how_many(8, whole=40), deadline=None, suppress_health_check=list(HealthCheck)
)
def test_any_sequence_of_adds_and_removes_gives_the_files_of_a_set(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]
) -> None:
    tables = Tables(Path(tmp_path_factory.mktemp("history")))
    state: Any = tables.create(SCHEMA)
    live: set[str] = set()
    for verb, name in steps:
        match verb:
            case "add":
                state = tables.commit(state, Change(adds=(data_file(name),)))
                live.add(name)
            case "remove":
                state = tables.commit(state, Change(removes=(RemovedFile(name),)))
                live.discard(name)
            case "checkpoint" if state.version > 0:
                tables.run(tables.format.checkpoint(state))
            case _:
                state = tables.open()
        assert tables.paths(state) == sorted(live)
    assert tables.paths(tables.open()) == sorted(live)
    refs = [(f"f{n}", None) for n in range(6)]
    expected = [ref for ref in refs if ref[0] not in live]
    assert tables.run(tables.open().missing(refs)) == expected


def test_removing_a_file_keeps_the_same_path_with_another_deletion_vector(tables: Tables) -> None:
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 4)
    properties = {"delta.enableDeletionVectors": "true"}
    marked = data_file("a", deletion_vector=vector)
    state = tables.commit(tables.create(SCHEMA, properties=properties), Change(adds=(marked,)))
    tables.run(tables.format.checkpoint(state))
    tables.commit(state, Change(removes=(RemovedFile("a"),)))
    opened = tables.open()
    assert opened.checkpoint is not None
    assert tables.files(opened).column("dv_id").to_pylist() == [vector.id]
    assert tables.run(opened.missing([marked.ref, ("a", None)])) == [("a", None)]

"""The difference of two states applied to a third state, computed from lists of files alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from lakevilla.errors import InvalidOperation, MergeConflict
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.delta.table_format import DeltaFormat
from lakevilla.formats.files import DataFile, DeletionVector, removal
from lakevilla.lake.operations.difference import difference
from lakevilla.lake.operations.transplant import transplanted
from lakevilla.store.base import Missing
from lakevilla.sublogs.operations import Defined, Transplant
from lakevilla_testing.planted.every import PLANTED
from tests.support.by_hand import outcome

FORMAT = DeltaFormat()


def file(name: str, vector: str | None = None) -> DataFile:
    deletes = None if vector is None else DeletionVector("i", vector, 8, 1)
    return DataFile(f"{name}.parquet", 10, 0, stats='{"numRecords":1}', deletion_vector=deletes)


def state(*files: DataFile, columns: str = "n") -> TableSnapshot:
    blank = FORMAT.blank("t", "t")
    schema = pa.schema([pa.field(name, pa.int64()) for name in columns])
    marks = {"delta.enableDeletionVectors": "true"}
    made = FORMAT.create(
        blank, schema, table_id="x", partition_by=(), properties=marks, created_ms=0
    )
    return blank.apply(made).apply(Change(adds=files))


def between(before: TableSnapshot, after: TableSnapshot, **options: Any) -> Transplant:
    found = outcome(difference(before, after))
    return Transplant("t", found.removes, found.adds, found.before, found.after, **options)


def applied(operation: Transplant, ours: TableSnapshot, *answers: Any) -> tuple[set[str], set[str]]:
    """Return the paths of the removed files, and those of the added files."""
    context: Any = type("Context", (), {"formats": Formats(), "engine": None})
    change = outcome(transplanted(context, operation, ours, lambda partition: ""), *answers).change
    return {one.path for one in change.removes}, {one.path for one in change.adds}


class Formats:
    def of(self, _: TableSnapshot) -> DeltaFormat:
        return FORMAT


A, B, C = file("a"), file("b"), file("c")


def test_a_transplant_adds_and_removes_the_files_that_differ() -> None:
    operation = between(state(A, B), state(A, C))
    assert applied(operation, state(A, B)) == ({"b.parquet"}, {"c.parquet"})
    assert applied(operation, state(A, B, file("ours"))) == ({"b.parquet"}, {"c.parquet"})
    back = between(state(A, C), state(A, B))
    assert applied(back, state(A, C)) == ({"c.parquet"}, {"b.parquet"})


def test_a_transplant_does_not_add_files_that_are_already_there() -> None:
    operation = between(state(A, B), state(A, C))
    assert applied(operation, state(A, C)) == (set(), set())
    assert applied(operation, state(A, B, C)) == ({"b.parquet"}, set())


def test_a_transplant_compares_rows_if_a_file_to_remove_was_rewritten() -> None:
    operation = between(state(A, B), state(A, C))
    ours = state(A, file("rewritten"))
    with pytest.raises(MergeConflict, match=r"t/b.parquet, which has rows to compare, was"):
        applied(operation, ours, Missing(), Missing())
    # The absence of a file to remove does not show that its rows are gone.
    with pytest.raises(MergeConflict):
        applied(between(state(A, B), state(A)), ours, Missing())
    with pytest.raises(InvalidOperation, match=r"was changed meanwhile: file b.parquet, which"):
        applied(msgspec.structs.replace(operation, exact=True), state(A))


def test_a_transplant_does_not_restore_rows_that_other_clients_have_deleted() -> None:
    operation = between(state(A), state(A, B))
    ours = state(A, file("b", "their rows"))
    with pytest.raises(MergeConflict, match=r"rows of file b.parquet"):
        applied(operation, ours)
    with PLANTED["paths_forgotten"].plant():
        assert applied(operation, ours) == (set(), {"b.parquet"})


def test_a_file_with_other_deletes_counts_as_another_file_in_a_transplant() -> None:
    operation = between(state(B), state(file("b", "some rows")))
    assert [one.deletion_vector for one in operation.adds] == [
        file("b", "some rows").deletion_vector
    ]
    assert applied(operation, state(B)) == ({"b.parquet"}, {"b.parquet"})


def test_a_transplant_changes_metadata_only_if_ours_has_not_changed_it_differently() -> None:
    operation = between(state(A), state(A, columns="nm"))
    assert operation.after is not None
    assert operation.adds == operation.removes == ()
    with pytest.raises(MergeConflict, match="on both sides"):
        applied(operation, state(A, columns="nk"))
    assert applied(operation, state(A, columns="nm")) == (set(), set())


def test_a_transplant_adds_files_if_ours_has_a_new_column_and_not_if_it_has_a_new_requirement() -> (
    None
):
    operation = between(state(A), state(A, B))
    assert applied(operation, state(A, columns="nm")) == (set(), {"b.parquet"})
    strict = state(A).apply(_required(state(A)))
    with pytest.raises(MergeConflict, match="schema or constraints were changed"):
        applied(operation, strict)


def _required(snapshot: TableSnapshot) -> Change:
    schema = pa.schema([pa.field("n", pa.int64()), pa.field("m", pa.int64(), nullable=False)])
    made = FORMAT.create(
        FORMAT.blank("t", "t"),
        schema,
        table_id="x",
        partition_by=(),
        properties={},
        created_ms=0,
    )
    assert made.metadata is not None
    return Change(metadata={**made.metadata, "id": snapshot.table_id})


def test_restoring_a_definition_keeps_counters_and_features_that_only_grow() -> None:
    now = state(A)
    metadata = {**now.metadata, "configuration": {"delta.columnMapping.maxColumnId": "7"}}
    later = now.apply(Change(metadata=metadata))
    older = {**now.metadata, "configuration": {"delta.columnMapping.maxColumnId": "3"}}
    change = FORMAT.redefine(later, older, {"minReaderVersion": 1, "minWriterVersion": 2})
    assert change.metadata is None
    assert change.protocol is None
    featured = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}
    change = FORMAT.redefine(
        later.apply(Change(protocol=featured)),
        older,
        {"minReaderVersion": 1, "minWriterVersion": 7},
    )
    assert change.protocol is None
    with pytest.raises(InvalidOperation, match="another id"):
        FORMAT.redefine(later, {**older, "id": "other"}, {})


def test_a_transplant_is_unchanged_after_encoding_and_decoding() -> None:
    operation = between(state(A, B), state(A, C), keys=("n",))
    again = msgspec.json.decode(msgspec.json.encode(operation), type=Transplant)
    assert again == operation
    assert Defined(operation.before.metadata, operation.before.protocol) == operation.before


def test_a_removal_by_a_transplant_has_the_size_of_its_file() -> None:
    assert removal(B).size == 10

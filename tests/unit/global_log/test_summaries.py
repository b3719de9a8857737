"""Summaries of commits: they never cover less than the commit has written."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lakevilla.formats.base import Change
from lakevilla.formats.files import DataFile, DeletionVector, RemovedFile
from lakevilla.global_log.summaries import (
    SUMMARY_BYTES,
    Summary,
    fingerprint,
    statistics_text,
    summarize,
)

COLUMNS = ["id", "name", "at", "price", "far"]


def added(stats: object = None, **partition_values: str | None) -> DataFile:
    text = stats if stats is None or isinstance(stats, str) else msgspec.json.encode(stats).decode()
    return DataFile("part-1.parquet", 10, 0, partition_values, stats=text)


def stats(**bounds: tuple[object, object, int]) -> dict[str, object]:
    return {
        "numRecords": 3,
        "minValues": {name: least for name, (least, _, _) in bounds.items()},
        "maxValues": {name: greatest for name, (_, greatest, _) in bounds.items()},
        "nullCount": {name: nulls for name, (_, _, nulls) in bounds.items()},
    }


def reported(file: DataFile, allowance: int = SUMMARY_BYTES) -> object:
    summary = summarize([Change(adds=(file,))], COLUMNS, allowance)
    assert summary is not None
    return msgspec.json.decode(statistics_text(summary.added[0]))


def test_bounds_of_a_summary_equal_those_of_the_log() -> None:
    known = stats(id=(1, 7, 0), name=("a", "b\u00e9", 1))
    assert reported(added(known)) == known


def test_only_the_leading_columns_of_a_table_are_summarized() -> None:
    known = stats(
        id=(1, 7, 0), name=("a", "b", 1), at=("x", "y", 0), price=(1, 2, 0), far=(1, 1, 0)
    )
    assert set(reported(added(known))["minValues"]) == set(COLUMNS[:4])  # type: ignore[index]


def test_a_number_in_a_summary_keeps_every_digit() -> None:
    text = '{"numRecords":1,"minValues":{"price":0.10000000000000000001},"maxValues":{}}'
    summary = summarize([Change(adds=(added(text),))], COLUMNS, SUMMARY_BYTES)
    assert summary is not None
    assert '"price":0.10000000000000000001' in statistics_text(summary.added[0])


def test_a_file_without_readable_statistics_gives_no_summary() -> None:
    for unknown in (None, "", "{", '{"numRecords":', "[]", '{"minValues":3}'):
        assert summarize([Change(adds=(added(unknown),))], COLUMNS, SUMMARY_BYTES) is None


def test_a_file_with_only_partition_values_gives_a_summary() -> None:
    summary = summarize([Change(adds=(added(None, day="2024-01-01"),))], COLUMNS, SUMMARY_BYTES)
    assert summary is not None
    assert summary.added[0].partition_values == {"day": "2024-01-01"}


def test_a_column_that_does_not_fit_the_size_limit_is_left_out_and_the_others_stay() -> None:
    known = stats(id=(1, 7, 0), name=("a" * 200, "b" * 200, 0), price=(1, 2, 0))
    assert set(reported(added(known), 120)["minValues"]) == {"id", "price"}  # type: ignore[index]


def test_a_nested_column_is_left_out_of_a_summary() -> None:
    nested = {
        "numRecords": 1,
        "minValues": {"id": 1, "name": {"first": "a"}},
        "maxValues": {"id": 1, "name": {"first": "a"}},
        "nullCount": {"id": 0, "name": {"first": 0}},
    }
    assert set(reported(added(nested))["minValues"]) == {"id"}  # type: ignore[index]


def test_a_file_with_a_new_deletion_vector_has_another_fingerprint() -> None:
    vector = DeletionVector("u", "abc", 10, 1, offset=1)
    plain = RemovedFile("p")
    assert fingerprint(plain.ref) != fingerprint(RemovedFile("p", deletion_vector=vector).ref)


def test_a_summary_is_unchanged_after_encoding_and_decoding() -> None:
    change = Change(adds=(added(stats(id=(1, 7, 0))),), removes=(RemovedFile("gone"),))
    summary = summarize([change], COLUMNS, SUMMARY_BYTES)
    assert summary is not None
    again = msgspec.json.decode(msgspec.json.encode(summary), type=Summary)
    assert statistics_text(again.added[0]) == statistics_text(summary.added[0])
    assert again.removed == (fingerprint(("gone", None)),)


@given(
    adds=st.lists(st.tuples(st.integers(), st.text(max_size=60), st.integers(0, 9)), max_size=9),
    removes=st.integers(0, 60),
    allowance=st.integers(0, SUMMARY_BYTES),
)
def test_a_summary_covers_every_file_within_its_size_limit(
    adds: list[tuple[int, str, int]], removes: int, allowance: int
) -> None:
    files = [
        added(stats(id=(number, number, nulls), name=(text, text, 0)))
        for number, text, nulls in adds
    ]
    gone = [RemovedFile(f"gone-{number}") for number in range(removes)]
    summary = summarize([Change(adds=tuple(files), removes=tuple(gone))], COLUMNS, allowance)
    if summary is None:
        return
    assert len(summary.added) == len(files)
    assert set(summary.removed) == {fingerprint(file.ref) for file in gone}
    parts = (*summary.added, *summary.removed)
    assert sum(len(msgspec.json.encode(part)) for part in parts) <= allowance
    for file, short in zip(files, summary.added, strict=True):
        assert file.stats is not None
        known = msgspec.json.decode(file.stats)
        shown = msgspec.json.decode(statistics_text(short))
        for part in ("minValues", "maxValues", "nullCount"):
            assert shown[part].items() <= known[part].items()

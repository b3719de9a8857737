"""Several changes of one table composed into one log entry."""

from __future__ import annotations

from lakevilla.formats.base import Change
from lakevilla.formats.files import ChangeFile, DataFile, removal
from lakevilla.lake.row_changes import compose


def added(path: str) -> DataFile:
    return DataFile(path=path, size=1, modification_time=1)


def test_a_file_that_is_added_and_removed_again_is_left_out() -> None:
    first, second = added("a"), added("b")
    both = compose([Change(adds=(first,)), Change(adds=(second,), removes=(removal(first),))])
    assert both.adds == (second,)
    assert both.removes == ()


def test_a_file_that_is_removed_and_added_again_is_left_out() -> None:
    first, second = added("a"), added("b")
    removes = Change(adds=(second,), removes=(removal(first),))
    both = compose([removes, Change(adds=(first,), removes=(removal(second),))])
    assert both.is_empty


def test_change_files_are_kept_if_every_change_of_rows_has_its_own() -> None:
    told = [
        Change(adds=(added(name),), change_files=(ChangeFile(f"_change_data/{name}", 1),))
        for name in "ab"
    ]
    assert len(compose([*told, Change(metadata={"id": "x"})]).change_files) == 2

"""The change files of a log entry have all of its changes, or the entry has no change files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakevilla.formats.base import Change
from lakevilla.formats.files import ChangeFile, removal
from lakevilla.lake.context import Context
from lakevilla.lake.operations.changes import in_one_entry, is_mixed
from lakevilla.store.effects import Program
from tests.support import by_hand
from tests.support.by_hand import data_file, outcome

OLD, NEW = data_file("old", 0, 9), data_file("new", 10, 19)
LISTED = Change(
    adds=(data_file("x", 20, 29),), change_files=(ChangeFile("_change_data/x.parquet", 1),)
)


class Writing:
    """A stub of an engine that notes for which files it is to write change files."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    def write_change_files(
        self, table: Any, change_type: str, name: Callable[[str], str]
    ) -> Program[Any]:
        yield from ()
        self.asked.append((change_type, table.files["path"].to_pylist()))
        return ((ChangeFile(f"_change_data/{change_type}", 1), change_type.encode()),)


@pytest.fixture
def context() -> Context:
    context = by_hand.make_context()
    context.engine = Writing()  # type: ignore[assignment]
    by_hand.make_tail(context, (OLD,))
    return context


def composed(context: Context, *changes: Change) -> tuple[Change, dict[str, bytes]]:
    before = context.tails["t"].snapshot
    return outcome(in_one_entry(context, before, changes, lambda place: place))


def test_no_change_files_are_written_if_no_change_or_each_change_has_them(context: Context) -> None:
    for changes in ([Change(adds=(NEW,))], [LISTED], [LISTED, Change(metadata={})]):
        assert not is_mixed(changes)
        _, bodies = composed(context, *changes)
        assert bodies == {}
    assert context.engine.asked == []  # type: ignore[attr-defined]


def test_a_change_without_change_files_next_to_one_with_them_gets_its_own(context: Context) -> None:
    change, bodies = composed(context, LISTED, Change(adds=(NEW,)), Change(removes=(removal(OLD),)))
    assert context.engine.asked == [("insert", ["new"]), ("delete", ["old"])]  # type: ignore[attr-defined]
    assert [file.path for file in change.change_files] == [
        "_change_data/x.parquet",
        "_change_data/insert",
        "_change_data/delete",
    ]
    assert bodies == {"t/_change_data/insert": b"insert", "t/_change_data/delete": b"delete"}


def test_moved_rows_get_no_change_files(context: Context) -> None:
    change, _ = composed(
        context,
        LISTED,
        by_hand.rewritten(OLD, data_file("moved", 0, 9, data_change=False), data_change=False),
    )
    assert len(change.change_files) == 1
    assert context.engine.asked == []  # type: ignore[attr-defined]

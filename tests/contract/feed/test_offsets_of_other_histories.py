"""Streams of a lake whose version numbers are used again: offsets identify the history, too.

The tests call what Spark calls, each time as a driver that has just started.
"""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.api.spark.source import tables, work

Offsets = dict[str, int | str]


class Stream:
    """A stream either of a table's changes or of the lake's versions."""

    def __init__(self, root: Path, what: str, ref: str | None = None) -> None:
        self.options = {"lake": str(root), "startingVersion": "1"}
        self.options |= {"table": "t"} if what == "changes" else {"what": what}
        self.options |= {} if ref is None else {"ref": ref}

    def batch(self, start: Offsets | None = None, end: Offsets | None = None) -> Any:
        """Return the end of a batch and its number of rows, as planned by a new driver."""
        tables._opened.cache_clear()
        bound = work.bound(pickle.dumps({}), self.options)
        state = work.stream(pickle.dumps({}), self.options, work.schema(bound))
        start = work.first_offset(state) if start is None else start
        end = work.next_offset(state, start) if end is None else end
        parts = work.ranges(state, start, end)
        rows = [work.rows("changes", state, part) for part in parts]
        return end, sum(batch.num_rows for part in rows for batch in part)


@pytest.fixture(params=["changes", "versions"])
def what(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("t", [{"id": 1}])
    return tmp_path / "lake"


def append(root: Path, *ids: int, ref: str = "main") -> None:
    with lv.connect(root) as lake:
        for number in ids:
            lake.on(ref).run(lambda txn, number=number: txn.append("t", [{"id": number}]))


def check_refused(stream: Stream, start: Offsets, at: Offsets, match: str) -> None:
    """Assert that the stream neither plans its next batch nor repeats its last one."""
    with pytest.raises(lv.VersionNotFound, match=match):
        stream.batch(at)
    with pytest.raises(lv.VersionNotFound, match=match):
        stream.batch(start, at)


def test_a_stream_of_a_lake_restored_from_a_backup_and_written_since_is_refused(
    root: Path, what: str
) -> None:
    """A restored backup has the lake's id, but other commits from some version number on."""
    stream = Stream(root, what)
    backup = shutil.copytree(root, root.with_name("backup"))
    start, _ = stream.batch()
    append(root, 2, 3)
    at, count = stream.batch(start)
    assert count == 2
    shutil.rmtree(root)
    backup.rename(root)
    append(root, 12, 13, 14)
    check_refused(stream, start, at, r"and that version is commit .* was set back to an older")
    assert stream.batch(start)[1] == 3  # offsets from before the backup stay valid


def test_a_stream_whose_root_holds_another_lake_now_is_refused(root: Path, what: str) -> None:
    stream = Stream(root, what)
    start, _ = stream.batch()
    append(root, 2)
    at, _ = stream.batch(start)
    shutil.rmtree(root)
    with lv.connect(root) as lake:
        lake.create_table("t", [{"id": 100}])
    append(root, 101, 102)
    check_refused(stream, start, at, r"of lake .*, and .* is lake .*: begin with a new checkpoint")


@pytest.mark.parametrize("how", ["made again", "rebased"])
def test_a_stream_of_a_branch_that_was_recreated_or_rebased_is_refused(
    root: Path, what: str, how: str
) -> None:
    with lv.connect(root) as lake:
        lake.branch("etl")
        append(root, 2, 3, ref="etl")
        stream = Stream(root, what, "etl")
        start, _ = stream.batch({"version": 1})
        append(root, 4, ref="etl")
        at, _ = stream.batch(start)
        if how == "rebased":
            append(root, 50)
            lake.rebase("etl")
        else:
            lake.delete_ref("etl")
            lake.branch("etl")
    append(root, 5, 6, 7, ref="etl")
    check_refused(stream, start, at, "created or rebased")


def test_a_stream_goes_on_at_an_adopted_copy_of_its_lake(root: Path, what: str) -> None:
    append(root, 2)
    at, _ = Stream(root, what).batch()
    copy = shutil.copytree(root, root.with_name("copy"))
    append(root, 3)
    beyond, _ = Stream(root, what).batch(at)
    with lv.connect(copy) as lake:
        lake.doctor(adopt=True)
    append(copy, 13, 14)
    moved = Stream(copy, what)
    check_refused(moved, at, beyond, r"of lake .*, and .* is lake")
    assert moved.batch(at)[1] == 2

"""Offsets of streams whose last commit is not in the kept history."""

from __future__ import annotations

from typing import TypeVar

import pytest

import lakevilla as lv
from lakevilla.api.spark.source.batches import Offset, in_history, refuse_other_history
from lakevilla.global_log.head import Head
from lakevilla.store.effects import Program

T = TypeVar("T")

#: A lake whose history begins after its last commit.
HEAD = Head(1, "ours", "/lake", "n", sequence=7, history_start=7)


def result(program: Program[T]) -> T:
    """Run a program that sends no request."""
    try:
        next(program)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("it makes a request")


def test_an_offset_names_the_lake_and_the_version_that_are_known() -> None:
    assert result(in_history(HEAD, Offset(7))).as_dict() == {"version": 7, "lake": "ours"}
    assert result(in_history(None, Offset(0))).as_dict() == {"version": 0}


def test_an_offset_whose_commit_has_expired_is_compared_by_the_lakes_id_alone() -> None:
    """A lake without new commits whose history has expired is still the same lake."""
    kept_then = Offset(7, lake="ours", commit="01a2")
    assert Offset.of(kept_then.as_dict()) == kept_then
    assert result(refuse_other_history(HEAD, kept_then, "changes")) is None
    with pytest.raises(lv.VersionNotFound, match="of lake theirs, and /lake is lake ours"):
        result(refuse_other_history(HEAD, Offset(7, lake="theirs"), "changes"))


@pytest.mark.parametrize(
    "stored",
    [{}, {"version": "3"}, {"version": 3, "within": [4]}, {"version": "\ud800"}],
)
def test_an_offset_of_a_damaged_checkpoint_is_refused(stored: dict[str, int | str]) -> None:
    with pytest.raises(lv.InvalidOperation, match="restore the checkpoint, or begin with a new"):
        Offset.of(stored)

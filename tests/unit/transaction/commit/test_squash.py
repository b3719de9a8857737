"""Squashes of a branch's commits: how many files they write again, and how many commits stay."""

from __future__ import annotations

import random

import pytest

from lakevilla.transaction.commit import squash


@pytest.mark.parametrize("files", [1, 7])
def test_a_file_is_written_again_a_few_times_through_ten_thousand_commits(files: int) -> None:
    apart: list[int] = []
    written = 0
    for _ in range(10_000):
        if len(apart) > squash.MOST_APART:
            start = squash.first_to_squash(apart)
            written += sum(apart[start:])
            apart[start:] = [sum(apart[start:])]
        apart.append(files)
    assert written < 9 * 10_000 * files, "one more for each tripling of what came after"
    assert len(apart) <= squash.MOST_APART + 1


def test_a_squash_has_at_least_half_of_the_commits_whatever_their_sizes_are() -> None:
    drawn = random.Random(0)
    apart: list[int] = []
    for _ in range(2_000):
        if len(apart) > squash.MOST_APART:
            start = squash.first_to_squash(apart)
            assert 0 <= start <= len(apart) - squash.MOST_APART // 2
            apart[start:] = [sum(apart[start:])]
        apart.append(drawn.choice([1, 1, 1, 50, 1_000]))
        assert len(apart) <= squash.MOST_APART + 1


def test_two_commits_are_squashed_into_one_where_no_more_may_stay_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(squash, "MOST_APART", 1)
    assert squash.first_to_squash([1_000, 1]) == 0

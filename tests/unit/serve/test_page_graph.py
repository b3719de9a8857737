"""The graphs of the pages, as functions of commits and of transactions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lakevilla.results import TransactionInfo
from lakevilla.serve.page.graph import LEFT, ROW, STEP, TOP, Commit, Line, drawing
from lakevilla.serve.page.waits import MOST, wait_graph

START = datetime(2026, 1, 1, tzinfo=UTC)


def _commit(track: int, version: int, **others: str) -> Commit:
    at = START + timedelta(seconds=version)
    return Commit(track, version, at, "transaction", "write", (), None, **others)


def _y(row: int) -> int:
    return TOP + ROW * row + ROW // 2


def test_a_line_leads_through_its_commits_and_a_branch_begins_at_its_base() -> None:
    commits = [_commit(1, 4), _commit(0, 4), _commit(1, 3), _commit(0, 3), _commit(0, 2)]
    found = drawing(commits, [Line("main", 0), Line("night", 1, 2)])
    x = LEFT + STEP
    assert found.paths == (
        (0, f"M{LEFT} {_y(1)}V{_y(4)}"),
        (1, f"M{x} {_y(0)}V{_y(2)}"),
        (1, f"M{x} {_y(2)}V{_y(4) - 16}Q{x} {_y(4)} {LEFT} {_y(4)}"),
    )
    assert [dot[1:3] for dot in found.dots] == [
        (x, _y(0)),
        (LEFT, _y(1)),
        (x, _y(2)),
        (LEFT, _y(3)),
        (LEFT, _y(4)),
    ]
    assert (found.width, found.height) == (LEFT * 2 + STEP, TOP + ROW * 5)


def test_a_merge_leads_from_the_branch_to_the_commit_that_merged_it() -> None:
    commits = [_commit(0, 4, merged="night@3"), _commit(1, 3), _commit(0, 2)]
    found = drawing(commits, [Line("main", 0), Line("night", 1, 2)])
    x = LEFT + STEP
    assert (1, f"M{x} {_y(1)}V{_y(0) + 16}Q{x} {_y(0)} {LEFT} {_y(0)}") in found.paths
    gone = drawing(commits[:1] + commits[2:], [Line("main", 0)])
    assert len(gone.paths) == 1  # the branch has ended: only the main line is there


def test_a_branch_whose_base_is_on_another_page_leads_to_the_end_of_this_one() -> None:
    found = drawing([_commit(1, 9), _commit(1, 8), _commit(0, 7)], [Line("night", 1, 2)])
    x = LEFT + STEP
    assert found.paths == (
        (1, f"M{x} {_y(0)}V{_y(1)}"),
        (1, f"M{x} {_y(1)}V{found.height}"),
    )


def _waiting(edges: dict[int, list[int]]) -> list[TransactionInfo]:
    return [
        TransactionInfo(str(one), "waiting", "o", START, START, (), tuple(map(str, found)))
        for one, found in edges.items()
    ]


def test_a_waiting_transaction_is_drawn_below_those_for_whom_it_waits() -> None:
    found = wait_graph(_waiting({1: [], 2: [1], 3: [1, 2], 4: []}))
    assert found is not None
    assert [one.number for one in found.circles] == [1, 2, 3]  # nobody waits for 4
    assert [one.y for one in found.circles] == sorted({one.y for one in found.circles})
    assert len(found.arrows) == 2  # 3 waits for 1 by way of 2
    assert found.text == "2 waits for 1; 3 waits for 1, 2."
    assert not any(one.in_ring for one in found.circles)


def test_a_ring_is_marked_and_ends() -> None:
    found = wait_graph(_waiting({1: [2, 4], 2: [3], 3: [4], 4: [2]}))
    assert found is not None
    assert {one.number for one in found.circles if one.in_ring} == {2, 3, 4}
    assert "2, 3, 4 wait in a ring" in found.text
    assert len({(one.x, one.y) for one in found.circles}) == 4
    assert len(found.arrows) == 5
    assert max(found.circles, key=lambda one: one.y).number == 1


def test_a_graph_of_waits_has_an_end() -> None:
    everyone = {number: list(range(1, number)) for number in range(1, 200)}
    found = wait_graph(_waiting(everyone))
    assert found is not None
    assert len(found.circles) == MOST
    assert len(found.arrows) == MOST - 1
    assert wait_graph(_waiting({1: [], 2: []})) is None

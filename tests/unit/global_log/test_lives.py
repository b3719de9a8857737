"""Summaries in HEAD show which table ids entered and left the lake, and with which commit."""

from __future__ import annotations

from lakevilla.global_log.head import CommitSummary, Head, TableState, Touch, empty_head, successor


def after(head: Head, tables: dict[str, TableState], *touched: str) -> Head:
    """Return ``head`` with one commit for each item of ``touched``, all in one replacement."""
    commits = [
        CommitSummary(
            head.sequence + number, 0, "transaction", f"t{number}", "", {table: Touch(published=0)}
        )
        for number, table in enumerate(touched, 1)
    ]
    return successor(
        head, nonce=str(head.replacement + 1), now_ms=1, commits=commits, tables=tables
    )


def epochs(head: Head) -> list[tuple[str | None, str | None]]:
    """Return (left, entered) of each commit."""
    touches = [touch for commit in head.commits for touch in commit.tables.values()]
    return [(touch.left, touch.entered) for touch in touches]


EMPTY = empty_head("lake", "root", "0", 1)


def test_a_table_that_is_created_dropped_and_created_again_enters_and_leaves_each_time() -> None:
    head = after(EMPTY, {"a": TableState("A", 0)}, "a")
    head = after(head, {"a": TableState("A", 1)}, "a")
    head = after(head, {"a": TableState("A", 1, dropped=True)}, "a")
    head = after(head, {"a": TableState("B", 0)}, "a")
    head = after(head, {"a": TableState("C", 3)}, "a")
    assert epochs(head) == [(None, "A"), (None, None), ("A", None), (None, "B"), ("B", "C")]


def test_the_first_of_several_commits_in_one_replacement_adds_a_table_and_the_last_drops_it() -> (
    None
):
    head = after(EMPTY, {"a": TableState("A", 0)}, "a", "a", "a")
    head = after(head, {"a": TableState("A", 0, dropped=True)}, "a", "a")
    assert epochs(head) == [(None, "A"), (None, None), (None, None), (None, None), ("A", None)]


def test_a_table_may_enter_and_leave_the_lake_in_one_replacement() -> None:
    gone = {"a": TableState("A", -1, dropped=True)}
    assert epochs(after(EMPTY, gone, "a", "a")) == [(None, "A"), ("A", None)]
    # Made and dropped by one transaction, the table never was in the lake.
    assert epochs(after(EMPTY, gone, "a")) == [(None, None)]


def test_a_commit_shows_no_entry_or_exit_of_tables_that_it_does_not_touch() -> None:
    head = after(EMPTY, {"a": TableState("A", 0), "b": TableState("B", 0)}, "a", "b")
    assert epochs(after(head, {"b": TableState("B", 1)}, "b"))[2:] == [(None, None)]

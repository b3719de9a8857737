"""The moment for which a leader waits, as told by what a group has measured (note 71)."""

from __future__ import annotations

from lakevilla.transaction.commit.together.group import Pace


def rounds(pace: Pace, members: int, back: float, round_: float = 0.2, count: int = 9) -> float:
    """Let a group be decided again and again, its members back after so long; return the time."""
    now = 100.0
    for _ in range(count):
        for _ in range(members):
            pace.note_arrival(now + back)
        pace.note_beginning(now + back)
        now += back + round_
        pace.note_decision(now, members)
    return now


def rounds_of_others(pace: Pace, now: float) -> float:
    """Let groups of two be decided, of clients that come once; return the time."""
    for _ in range(9):
        for _ in range(2):
            pace.note_arrival(now + 5)
        pace.note_beginning(now + 5)
        now += 5.2
        pace.note_decision(now, 2)
    return now


def test_a_leader_waits_a_little_longer_than_members_took_to_come_back() -> None:
    pace = Pace()
    now = rounds(pace, members=8, back=0.1)
    pace.note_arrival(now + 0.1)
    found = pace.to_wait(now + 0.1, 1)
    assert found is not None
    gate, seconds = found
    assert 0 < seconds < 0.03
    for _ in range(6):
        pace.note_arrival(now + 0.11)
    assert not gate.is_open
    pace.note_arrival(now + 0.11)
    assert gate.is_open, "all are back"
    assert pace.to_wait(now + 0.11, 8) is None


def test_a_leader_does_not_wait_for_fewer_than_two_members() -> None:
    for members in (0, 1):
        pace = Pace()
        now = rounds(pace, members, back=0.01)
        assert pace.to_wait(now, 1) is None
    assert Pace().to_wait(1.0, 1) is None


def test_a_leader_does_not_wait_for_members_that_think_for_long() -> None:
    pace = Pace()
    now = rounds(pace, members=8, back=1.0)
    assert pace.to_wait(now, 1) is None
    pace.note_arrival(now + 1.0)
    assert pace.to_wait(now + 1.26, 1) is None, "the others would be back by now"


def test_members_that_do_not_come_back_end_the_waits() -> None:
    pace = Pace()
    now = rounds(pace, members=8, back=0.05)
    assert pace.to_wait(now, 1) is not None
    now = rounds_of_others(pace, now)
    assert pace.to_wait(now, 1) is None


def test_a_leader_of_many_does_not_wait_for_a_few() -> None:
    pace = Pace()
    now = rounds(pace, members=2, back=0.1)
    assert pace.to_wait(now, 1) is not None
    assert pace.to_wait(now, 8) is None

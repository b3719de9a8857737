"""The states of a ticket: the table of transitions, its diagram, and the order of tickets."""

from __future__ import annotations

import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakevilla.errors import CorruptObject, UnsupportedFormat
from lakevilla.markers.marker import Listed, Marker, Unreadable
from lakevilla.markers.queue import (
    INITIAL,
    TERMINAL,
    TRANSITIONS,
    Happening,
    InvalidTransition,
    State,
    advance,
    ahead,
    covers,
    passes,
)
from lakevilla.store.base import Token
from lakevilla.sublogs.record import Ticket
from tests.support.drawing import arrows_of, shown_in

LIVE = set(State) - TERMINAL

#: Written a second time, by hand, from the design (design, sections 5 and 7).
EXPECTED = {
    ("placing", "TAKEN", "placing"),
    ("placing", "PLACED_BEHIND", "waiting"),
    ("placing", "PLACED_FIRST", "first"),
    ("waiting", "REACHED", "first"),
    ("waiting", "GAVE_WAY", "shifted"),
    ("waiting", "COMMITTED", "freed"),
    ("waiting", "SWEPT", "stale"),
    ("first", "OVERTAKEN", "waiting"),
    ("first", "GAVE_WAY", "shifted"),
    ("first", "STEPPED_BACK", "freed"),
    ("first", "COMMITTED", "freed"),
    ("first", "SWEPT", "stale"),
    ("shifted", "TAKEN", "shifted"),
    ("shifted", "PLACED_BEHIND", "waiting"),
    ("shifted", "PLACED_FIRST", "first"),
    ("stale", "WOKE", "placing"),
    ("stale", "ENDED", "freed"),
    *((state, "ABORTED", "aborted") for state in ("placing", "waiting", "first")),
    *((state, "ABORTED", "aborted") for state in ("shifted", "stale")),
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Happening)))
def test_each_event_leads_to_the_state_in_the_design_or_raises(
    state: State, event: Happening
) -> None:
    targets = {to for at, happening, to in EXPECTED if (at, happening) == (state, event.name)}
    if targets:
        assert {advance(state, event)} == targets
        return
    why = f"that is {state} allows .*, not {event.name}"
    with pytest.raises(InvalidTransition, match=why) as e:
        advance(state, event)
    assert (e.value.state, e.value.event) == (state, event)
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)


def test_every_state_of_a_ticket_is_reachable_and_leads_to_an_end() -> None:
    def reached(start: State) -> set[State]:
        seen, todo = set(), [start]
        while todo:
            state = todo.pop()
            if state not in seen:
                seen.add(state)
                todo += TRANSITIONS[state].values()
        return seen

    assert reached(INITIAL) == set(State)
    assert {State.FREED, State.ABORTED} == TERMINAL
    for state in LIVE:
        assert State.ABORTED in TRANSITIONS[state].values()
        assert reached(state) >= TERMINAL


@given(st.lists(st.sampled_from(Happening), max_size=40))
def test_a_forbidden_event_changes_no_state(events: list[Happening]) -> None:
    state, placed, table = INITIAL, False, repr(TRANSITIONS)
    for event in events:
        try:
            after = advance(state, event)
        except InvalidTransition:
            assert event not in TRANSITIONS[state]
            continue
        assert state not in TERMINAL
        placed = placed or event in (Happening.PLACED_BEHIND, Happening.PLACED_FIRST)
        # No transaction is in a queue, or leaves it by committing, that was not placed.
        assert placed or after in (State.PLACING, State.ABORTED)
        # A swept transaction is not in the queue again without a new ticket.
        assert state is not State.STALE or after not in (State.WAITING, State.FIRST)
        state = after
    assert repr(TRANSITIONS) == table


def test_the_diagram_of_ticket_states_shows_all_transitions() -> None:
    edges = set(arrows_of(TRANSITIONS, INITIAL, TERMINAL))
    moves = {f"{at} --> {to}: {Happening[event]}" for at, event, to in EXPECTED}
    assert edges == moves | {"[*] --> placing", "freed --> [*]", "aborted --> [*]"}
    # A colon, a semicolon or a line break would end a label.
    assert not any(sign in event for event in Happening for sign in ":;\n")


def test_the_picture_on_the_page_on_queues_shows_all_transitions() -> None:
    assert shown_in("ticket-states.svg") == arrows_of(TRANSITIONS, INITIAL, TERMINAL)


# ------------------------------------------------------- who goes before whom

ACCESSES = ("read", "append", "write")
ME, OTHER = (f"01a1fd3e-938f-7a0d-bcd3-691a01e4525{n}" for n in (6, 8))


@pytest.mark.parametrize(("ours", "theirs"), list(itertools.product(ACCESSES, ACCESSES)))
def test_reads_pass_reads_and_appends_pass_appends(ours: str, theirs: str) -> None:
    passing = {("read", "read"), ("append", "append")}
    assert passes(ours, theirs) == ((ours, theirs) in passing)  # type: ignore[arg-type]


@pytest.mark.parametrize(("held", "wanted"), list(itertools.product(ACCESSES, ACCESSES)))
def test_a_held_ticket_covers_the_same_access_and_a_write_ticket_covers_all(
    held: str, wanted: str
) -> None:
    covered = {("read", "read"), ("append", "append"), *(("write", a) for a in ACCESSES)}
    assert covers(held, wanted) == ((held, wanted) in covered)  # type: ignore[arg-type]
    # Meaning: an access that passes the held ticket would also pass the wanted one.
    if covers(held, wanted):  # type: ignore[arg-type]
        for third in ACCESSES:
            assert passes(wanted, third) or not passes(held, third)  # type: ignore[arg-type]


def present(number: int, txn: str, access: str) -> tuple[Listed, Marker]:
    marker = Marker(1, "n", txn, "t", number, access)  # type: ignore[arg-type]
    return Listed(number, Token(f'"{number}"')), marker


def test_lower_tickets_of_other_transactions_are_ahead_unless_they_may_be_passed() -> None:
    there = [
        present(9, OTHER, "write"),
        present(4, OTHER, "append"),
        present(3, OTHER, "read"),
        present(2, ME, "write"),
        present(1, OTHER, "write"),
        present(5, OTHER, "write"),
    ]

    def numbers(access: str) -> list[int]:
        mine = Ticket("t", 5, access)  # type: ignore[arg-type]
        return [listed.number for listed, _ in ahead(mine, there, ME)]

    assert numbers("append") == [1, 3]
    assert numbers("read") == [1, 4]
    assert numbers("write") == [1, 3, 4]
    assert ahead(Ticket("t", 1, "write"), there, ME) == []


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("newer", [True, False])
def test_an_unreadable_marker_counts_as_a_writer(access: str, newer: bool) -> None:
    error = UnsupportedFormat("x") if newer else CorruptObject("x")
    unknown = (Listed(2, Token('"2"')), Unreadable(2, newer, error))
    mine = Ticket("t", 3, access)  # type: ignore[arg-type]
    assert ahead(mine, [unknown], ME) == [unknown]
    assert ahead(Ticket("t", 1, "write"), [unknown], ME) == []


@given(st.lists(st.tuples(st.sampled_from([ME, OTHER, "third"]), st.sampled_from(ACCESSES))))
def test_exactly_one_of_two_transactions_that_do_not_pass_each_other_is_ahead(
    queue: list[tuple[str, str]],
) -> None:
    there = [present(number, txn, access) for number, (txn, access) in enumerate(queue, 1)]
    waits = {
        listed.number: {
            other.number for other, _ in ahead(Ticket("t", listed.number, m.access), there, m.txn)
        }
        for listed, m in there
    }
    for (a, one), (b, two) in itertools.combinations(there, 2):
        behind = (a.number in waits[b.number]) + (b.number in waits[a.number])
        assert behind == (one.txn != two.txn and not passes(one.access, two.access))

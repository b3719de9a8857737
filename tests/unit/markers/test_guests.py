"""When the tables of Iceberg clients that were refused are reserved for them."""

from __future__ import annotations

from lakevilla.global_log.head import Reservation
from lakevilla.markers.guests import Guests, guests_at


def test_the_second_refusal_within_ten_seconds_reserves() -> None:
    guests = Guests()
    assert not guests.note_refusal(["t"], 100.0)
    assert guests.note_refusal(["t", "u"], 109.0)
    other = Guests()
    assert not other.note_refusal(["t"], 100.0)
    assert not other.note_refusal(["t"], 111.0)
    assert not other.note_refusal(["u"], 112.0)


def test_a_reservation_that_no_guest_uses_is_followed_by_a_rest() -> None:
    guests = Guests()
    guests.note_refusal(["t"], 100.0)
    assert guests.note_refusal(["t"], 101.0)
    assert not any(guests.note_refusal(["t"], 101.0 + number) for number in range(9))
    assert guests.note_refusal(["t"], 110.5)


def test_a_used_reservation_gives_others_as_long_as_it_has_taken() -> None:
    guests = Guests()
    guests.note_refusal(["t"], 100.0)
    assert guests.note_refusal(["t"], 101.0)
    guests.note_commit(["t"], 103.0)
    assert not guests.note_refusal(["t"], 104.5)
    assert guests.note_refusal(["t"], 105.5)


def test_a_process_forgets_tables_that_it_does_not_hear_of() -> None:
    guests = Guests()
    for number in range(100):
        guests.note_refusal([f"t{number}"], 100.0)
        guests.note_refusal([f"t{number}"], 100.5)
    guests.note_refusal(["t"], 200.0)
    assert guests._refused.keys() == {"t"}
    guests.note_refusal(["t"], 201.0)
    assert guests._reserved.keys() == guests._rests.keys() == {"t"}


def test_reservations_for_guests_are_those_of_their_tables() -> None:
    reserved = [
        Reservation("1", ("t",)),
        Reservation("2", ("t", "u"), guest=True),
        Reservation("3", ("v",), guest=True),
    ]
    assert guests_at(reserved, {"u", "x"}) == ["2"]

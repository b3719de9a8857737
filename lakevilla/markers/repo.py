"""Placing, listing, reading and freeing markers: programs over the store.

Nothing here must be exact: if two transactions both believe that they are first, or if the marker
of a live transaction was deleted, that costs a redo.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass

from lakevilla.errors import CorruptObject, StoreError, UnsupportedFormat
from lakevilla.ids import Ids
from lakevilla.markers.marker import (
    LAST_TICKET,
    Listed,
    Marker,
    Present,
    Unreadable,
    marker_key,
    markers_prefix,
    read_marker,
    ticket_of,
)
from lakevilla.store.base import ABSENT, Found, Refused, Stored, Token, Unknown
from lakevilla.store.codec import FORMAT, encode
from lakevilla.store.effects import Program, delete, get, list_objects, parallel, put
from lakevilla.store.readback import same_object
from lakevilla.sublogs.record import RESERVATION, Access, Ticket

#: So many numbers are tried in turn. After that each step is a random one, up to twice as far as
#: the one before: else of transactions that take places at the same moment, each would send a
#: request for each of the others.
_IN_TURN = 8
_FARTHEST = 1024
#: The most numbers that are tried, as other transactions take tickets between our list and marker.
PLACES_TRIED = 256

#: The highest ticket that a queue can reach: a file with a higher number was not placed by
#: LakeVilla. It counts as a marker, but no transaction takes a ticket above it: the numbers up to
#: ``LAST_TICKET`` would soon be used up.
_HIGHEST_JOINED = LAST_TICKET // 10

#: The most creates with an unknown outcome; each of them has used up all its retries.
_DOUBTS_TRIED = 3


@dataclass(frozen=True, slots=True)
class Placed:
    """A ticket that was taken.

    Attributes
    ----------
    ticket : Ticket
        Its marker is in the store.
    met : tuple of Present
        Markers of other transactions that were created after the list, and took the numbers that
        were tried first.
    doubtful : tuple of int
        Numbers whose create ended ``Unknown``: a marker of this transaction may exist there, or the
        store may create it later. It carries the transaction's id, so the transaction never waits
        for it; ``withdraw`` deletes it at the end. A marker that is stored after the transaction's
        record was deleted does not count.
    """

    ticket: Ticket
    met: tuple[Present, ...] = ()
    doubtful: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Guess:
    """The outcome for ticket 1: held, perhaps held (``is_doubtful``), or another transaction's."""

    ticket: Ticket
    is_held: bool = False
    is_doubtful: bool = False


def list_markers(location: str) -> Program[list[Listed]]:
    """Return the tickets that are placed at a table, lowest first. Other objects are skipped."""
    infos = yield from list_objects(markers_prefix(location))
    numbered = [(ticket_of(info.key), info.token) for info in infos]
    listed = [Listed(number, token) for number, token in numbered if number is not None]
    return sorted(listed, key=lambda entry: entry.number)


def place(
    location: str, txn: str, access: Access, ids: Ids, listed: Sequence[Listed]
) -> Program[Placed]:
    """Take the ticket after the highest of ``listed``, or one after it that is not taken.

    A list that is old or incomplete does no harm: the store refuses a number that is taken, and a
    number that is too low costs each transaction behind it a redo at most.

    Raises
    ------
    StoreError
        All numbers that were tried are taken, or the outcomes of several creates stay unknown.
    """
    joined = (entry.number for entry in listed if entry.number <= _HIGHEST_JOINED)
    first = 1 + max(joined, default=RESERVATION)
    met: list[Present] = []
    doubtful: list[int] = []
    number = first
    for tried in range(PLACES_TRIED):
        key = marker_key(location, number)
        body = encode(Marker(FORMAT, ids.nonce(), txn, location, number, access))
        outcome = yield from put(key, body, ABSENT)
        match outcome:
            case Stored():
                return Placed(Ticket(location, number, access), tuple(met), tuple(doubtful))
            case Refused(current=current):
                # Most refusals return the marker that holds the number; else the marker is read.
                found = current or (yield from get(key))
                if isinstance(found, Found):
                    met.append(_present(location, number, found))
            case Unknown(reason=reason):
                # Never try this number again: if our marker is stored there, the store would refuse
                # a second create because of it.
                doubtful.append(number)
                if len(doubtful) == _DOUBTS_TRIED:
                    raise StoreError(
                        f"could not place a marker of transaction {txn} at table {location}: the "
                        f"store left the outcome of {key} open ({reason}); run it again",
                        table=location,
                        txn_id=txn,
                    )
        number += 1
        if tried >= _IN_TURN:
            number += int(ids.jitter() * min(_FARTHEST, 2 ** (tried + 1 - _IN_TURN)))
    raise StoreError(
        f"could not place a marker of transaction {txn} at table {location}: no ticket of the "
        f"{PLACES_TRIED} from {first} on could be taken; run it again, or check the objects in "
        f"{markers_prefix(location)} by `lakevilla doctor`",
        table=location,
        txn_id=txn,
    )


def place_first(location: str, txn: str, access: Access, ids: Ids) -> Program[Guess]:
    """Try to take ticket 1 without listing the queue: the right ticket if the queue is empty."""
    ticket = Ticket(location, RESERVATION + 1, access)
    key = marker_key(location, ticket.number)
    marker = Marker(FORMAT, ids.nonce(), txn, location, ticket.number, access)
    outcome = yield from put(key, encode(marker), ABSENT)
    match outcome:
        case Stored():
            return Guess(ticket, is_held=True)
        case Unknown():
            return Guess(ticket, is_doubtful=True)
        case _:
            return Guess(ticket)


def load_markers(
    location: str,
    listed: Sequence[Listed],
    known: MutableMapping[tuple[str, Token], Marker | Unreadable],
) -> Program[list[Present]]:
    """Return the markers of ``listed``; read those that are not ``known`` in one round.

    Markers that were read are added to ``known`` (by key and token), which may outlive
    transactions: a marker never changes, and a marker that takes a freed number has another nonce,
    and so another token. Markers that were deleted since the list are left out.
    """
    missing = [
        entry for entry in listed if (marker_key(location, entry.number), entry.token) not in known
    ]
    outcomes = yield from parallel([get(marker_key(location, e.number)) for e in missing])
    read: dict[Listed, Present] = {}
    for entry, outcome in zip(missing, outcomes, strict=True):
        if not isinstance(outcome, Found):
            continue
        present = _present(location, entry.number, outcome)
        if same_object(entry.token, outcome.token):
            known[marker_key(location, entry.number), entry.token] = present[1]
            present = (entry, present[1])
        # Else the number was freed and taken again since the list: the newer marker counts, and
        # no marker has the listed token any more.
        read[entry] = present
    loaded: list[Present] = []
    for entry in listed:
        remembered = known.get((marker_key(location, entry.number), entry.token))
        if remembered is not None:
            loaded.append((entry, remembered))
        elif entry in read:
            loaded.append(read[entry])
    return loaded


def free(tickets: Iterable[Ticket | tuple[str, int]]) -> Program[None]:
    """Delete markers, all in one round; each is given as a ``Ticket`` or (location, number).

    Their owners are not checked. If another transaction has taken a number meanwhile, it loses its
    place: it finds that its ticket is missing before it commits.
    """
    places = [(t.table, t.number) if isinstance(t, Ticket) else t for t in tickets]
    yield from parallel([delete(marker_key(location, number)) for location, number in places])


def withdraw(txn: str, doubtful: Iterable[tuple[str, int]]) -> Program[None]:
    """Delete the markers of ``txn`` at (location, number) where one has been stored.

    The markers are read first: if a create was never stored, another transaction may have taken its
    number by now. A marker of ``txn`` that was read stays until ``txn``, or a transaction that
    sweeps it, deletes it; so no marker of another transaction is deleted.
    """
    places = list(doubtful)
    outcomes = yield from parallel([get(marker_key(*place)) for place in places])
    ours: list[tuple[str, int]] = []
    for (location, number), outcome in zip(places, outcomes, strict=True):
        if isinstance(outcome, Found):
            _, marker = _present(location, number, outcome)
            if isinstance(marker, Marker) and marker.txn == txn:
                ours.append((location, number))
    yield from free(ours)


def _present(location: str, number: int, found: Found) -> Present:
    listed = Listed(number, found.token)
    try:
        return listed, read_marker(marker_key(location, number), location, number, found.body)
    except UnsupportedFormat as error:
        return listed, Unreadable(number, True, error)
    except CorruptObject as error:
        return listed, Unreadable(number, False, error)

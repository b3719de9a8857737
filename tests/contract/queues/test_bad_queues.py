"""Strange objects in a queue stop no transaction, and raise no parser's error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import lakevilla as lv
from lakevilla.api.client.client import LakeClient
from lakevilla.api.lake import Lake
from lakevilla.clock import SystemClock
from lakevilla.global_log.head import HEAD_KEY, Reservation
from lakevilla.ids import uuid7
from lakevilla.markers.marker import Marker, marker_key
from lakevilla.store.backends.local import LocalStore
from lakevilla.store.base import ANY
from lakevilla.store.codec import FORMAT, encode
from lakevilla.store.effects import delete, put
from lakevilla.sublogs.record import Edge, Ticket, TxnRecord, record_key
from tests.support.inside import inside
from tests.support.places import Place, fill, make_place
from tests.support.queues import CT, I, R, Told, beside, head_of, left_over, records, tickets
from tests.support.tables import accounts, kinds

LEASE_SECONDS = 0.15
#: Far longer than a lease and some requests, far shorter than an endless wait.
SOON = 10.0
SHORT = lv.Settings(lease_seconds=LEASE_SECONDS, wait_poll_seconds=0.02, wait_poll_cap_seconds=0.05)
YEAR_1970 = uuid7(1, 7)
YEAR_2100 = uuid7(4_102_444_800_000, 7)
LAST_YEAR = uuid7((1 << 48) - 1, 7)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    place = make_place("memory", request)
    fill(place, {"x": accounts(3), "y": accounts(3)})
    return place


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect(settings=SHORT) as lake:
        lake.snapshot().read("x")
        yield lake


def store(lake: lv.Lake, key: str, body: bytes) -> None:
    inside(lake).run(put(key, body, ANY))


def marker(txn: str = YEAR_2100, table: str = "x", ticket: int = 1) -> bytes:
    return encode(Marker(FORMAT, "0" * 32, txn, table, ticket, "write"))


def record(txn: str = YEAR_2100, lease_seconds: float = LEASE_SECONDS, **fields: object) -> bytes:
    held = TxnRecord(
        FORMAT, "1" * 32, txn, "host:1:aa", 3, lease_seconds, 0, tickets=(Ticket("x", 1, "write"),)
    )
    return encode(msgspec.structs.replace(held, **fields))


def with_field(body: bytes, **fields: object) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(body), **fields})


def gets_through(lake: lv.Lake, features: lv.Feature = R | CT | I) -> float:
    """Commit a transaction that writes x; return how long it took."""
    (before,) = lake.snapshot().read("x", where="id = 0")["balance"].to_pylist()
    started = time.monotonic()
    with lake.transaction(features) as txn:
        txn.update("x", {"balance": "balance + 1"}, "id = 0")
    took = time.monotonic() - started
    assert lake.snapshot().read("x", where="id = 0")["balance"].to_pylist() == [before + 1]
    return took


MARKERS: dict[str, bytes] = {
    "empty": b"",
    "truncated": marker()[:-7],
    "no utf-8": b"\xff\xfe\x00",
    "no object": b"[]",
    "null": b"null",
    "nested without end": b"[" * 200_000,
    "only a format": b'{"format":1}',
    "format is text": with_field(marker(), format="1"),
    "of another table": marker(table="y"),
    "of another ticket": marker(ticket=7),
    "no such access": with_field(marker(), access="own"),
    "no transaction id": with_field(marker(), txn="../../HEAD"),
    "ticket is text": with_field(marker(), ticket="1"),
    "ticket without bounds": with_field(marker(), ticket=10**300),
}


@pytest.mark.parametrize("body", MARKERS.values(), ids=MARKERS)
def test_an_unreadable_marker_holds_its_place_for_a_lease_and_is_then_deleted(
    lake: lv.Lake, body: bytes
) -> None:
    store(lake, marker_key("x", 1), body)
    assert LEASE_SECONDS <= gets_through(lake) < SOON
    assert left_over(lake, "x") == []


def test_a_marker_of_a_newer_format_holds_its_place_for_a_lease_and_is_kept(lake: lv.Lake) -> None:
    body = with_field(marker(), format=FORMAT + 1, access="something new")
    store(lake, marker_key("x", 1), body)
    told = Told()
    with_another = inside(lake).context.notify
    inside(lake).context.notify = told
    assert LEASE_SECONDS <= gets_through(lake) < SOON
    assert len(told.of("waiting")) == 1
    gets_through(lake)
    assert len(told.of("waiting")) == 1, "passed once, passed for good"
    inside(lake).context.notify = with_another
    assert tickets(lake, "x") == [1]


@pytest.mark.parametrize("txn", [YEAR_1970, YEAR_2100, LAST_YEAR])
def test_a_marker_without_a_record_holds_no_place(place: Place, txn: str) -> None:
    with place.connect() as lake:  # a lease of half a minute
        store(lake, marker_key("x", 1), marker(txn))
        assert gets_through(lake) < 5
        assert left_over(lake, "x") == []


@pytest.mark.parametrize(
    "name",
    [
        "1.json",
        "0" * 20 + ".json",
        "9" * 20 + ".json",
        "x" * 20 + ".json",
        "1" * 20,
        ".json",
        "a/b",
    ],
)
def test_queue_objects_whose_names_are_no_tickets_are_ignored(lake: lv.Lake, name: str) -> None:
    key = f"x/_lakevilla/markers/{name}"
    store(lake, key, b"not ours")
    with lake.transaction(R | CT, wait_timeout_seconds=0) as txn:
        txn.delete("x", "false")
        assert tickets(lake, "x") == [1]


RECORDS: dict[str, bytes] = {
    "empty": b"",
    "truncated": record()[:-9],
    "no utf-8": b"\xff\xfe\x00",
    "nested without end": b"[" * 200_000,
    "only a format": b'{"format":1}',
    "of a newer format": with_field(record(), format=FORMAT + 1),
    "of another transaction": record(YEAR_1970),
    "no lease": record(lease_seconds=0.0),
    "negative lease": record(lease_seconds=-1e300),
    "lease is text": with_field(record(), lease_seconds="forever"),
    "lease without bounds": record().replace(b'"lease_seconds":0.15', b'"lease_seconds":1e999'),
    "lease is no number": record().replace(b'"lease_seconds":0.15', b'"lease_seconds":NaN'),
    "waits for itself": record(edges=(Edge(YEAR_2100, 1, YEAR_2100, 1, "x"),)),
    "waits for nobody": record(edges=(Edge(YEAR_2100, 1, "nobody/../..", 1, "x"),)),
    "waits for another": record(edges=(Edge(YEAR_2100, 1, YEAR_1970, 9, "x"),)),
    "speaks for another": record(edges=(Edge(YEAR_1970, 1, YEAR_2100, 1, "x"),)),
    "other tickets": record(tickets=(Ticket("x", 99, "read"), Ticket("nowhere", -1, "write"))),
    "no tickets": record(tickets=()),
    "sublog of nowhere": record(sublog="../../HEAD"),
}


@pytest.mark.parametrize("body", RECORDS.values(), ids=RECORDS)
def test_a_record_with_invalid_content_is_stale_after_a_lease(lake: lv.Lake, body: bytes) -> None:
    assert body != record()
    store(lake, marker_key("x", 1), marker())
    store(lake, record_key(YEAR_2100), body)
    assert LEASE_SECONDS <= gets_through(lake) < SOON
    assert tickets(lake, "x") == []


@pytest.mark.parametrize("txn", [YEAR_1970, YEAR_2100, LAST_YEAR])
def test_the_date_in_a_transactions_id_does_not_decide_whether_it_is_stale(
    lake: lv.Lake, txn: str
) -> None:
    store(lake, marker_key("x", 1), marker(txn))
    store(lake, record_key(txn), record(txn))
    assert LEASE_SECONDS <= gets_through(lake) < SOON
    assert tickets(lake, "x") == []


def test_a_ticket_with_a_lease_of_years_is_waited_for_only_a_limited_time(
    lake: lv.Lake,
) -> None:
    store(lake, marker_key("x", 1), marker())
    store(lake, record_key(YEAR_2100), record(lease_seconds=1e9))
    with lake.transaction(R | CT, wait_timeout_seconds=LEASE_SECONDS * 2) as txn:
        txn.update("x", {"balance": "0"}, "id = 0")
    assert tickets(lake, "x") == [1]


def test_a_cycle_of_dead_transactions_blocks_a_live_one_only_for_a_lease(lake: lv.Lake) -> None:
    """Two dead transactions wait for each other; the live one is behind both."""
    old, young = YEAR_1970, YEAR_2100
    for txn, mine, theirs, other in ((old, 1, 2, young), (young, 2, 1, old)):
        store(lake, marker_key("x", mine), marker(txn, ticket=mine))
        ticket = (Ticket("x", mine, "write"),)
        edges = (Edge(txn, mine, other, theirs, "x"),)
        store(lake, record_key(txn), record(txn, tickets=ticket, edges=edges))
    assert LEASE_SECONDS <= gets_through(lake) < SOON
    assert tickets(lake, "x") == []


class Shifted(SystemClock):
    """A clock that shows another year and runs at normal speed."""

    def __init__(self, now: float) -> None:
        self._offset = now - super().now()

    def now(self) -> float:
        return super().now() + self._offset


@pytest.mark.parametrize("year", [1970, 2100])
def test_deadlocked_clients_with_clocks_decades_apart_both_commit(
    tmp_path: Path, year: int
) -> None:
    place = Place(str(tmp_path / "lake"))
    fill(place, {"x": accounts(3), "y": accounts(3)})
    instant = 60.0 if year == 1970 else 4_102_444_800.0
    settings = lv.Settings(wait_poll_seconds=0.02, wait_poll_cap_seconds=0.05)
    told = Told()
    off = Lake(
        LakeClient(
            place.root,
            LocalStore(place.root),
            settings=settings,
            clock=Shifted(instant),
            on_event=told,
        )
    )
    with off, place.connect(settings=settings) as right:
        for number in range(2):
            mine, theirs = off.transaction(R | CT | I), right.transaction(R | CT | I)
            mine.update("x", {"balance": "balance + 1"}, "id = 0")
            theirs.update("y", {"balance": "balance + 1"}, "id = 0")
            mine.update("y", {"balance": "balance + 1"}, "id = 0")
            theirs.update("x", {"balance": "balance + 1"}, "id = 0")
            with beside(mine.commit):
                theirs.commit()
            for table in "xy":
                rows = right.snapshot().read(table, where="id = 0")
                assert rows["balance"].to_pylist() == [100 + 2 * (number + 1)]
        assert "stale" not in kinds(told.events)
        assert left_over(right, "x", "y") == []
        shifted = "shift" in kinds(told.events)
        assert shifted == (year == 2100), "the youngest by its id gives way"


@pytest.mark.night
def test_ten_thousand_dead_places_delay_a_transaction_by_two_leases(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"))
    fill(place, {"x": accounts(3)})
    count, lease = 10_000, 2.0
    settings = lv.Settings(lease_seconds=lease, wait_poll_seconds=0.05)
    told = Told()
    with place.connect(settings=settings, on_event=told) as lake:
        lake.register("x")
        markers = tmp_path / "lake" / Path(marker_key("x", 1)).parent
        txns = tmp_path / "lake" / Path(record_key(YEAR_1970)).parent
        markers.mkdir(parents=True)
        txns.mkdir(parents=True, exist_ok=True)
        for number in range(1, count + 1):
            txn = uuid7(number, number)
            Path(tmp_path, "lake", marker_key("x", number)).write_bytes(marker(txn, ticket=number))
            if number % 2:
                body = record(txn, lease, tickets=(Ticket("x", number, "write"),))
                Path(tmp_path, "lake", record_key(txn)).write_bytes(body)
        took = gets_through(lake)
        assert 2 * lease <= took < 60
        assert tickets(lake, "x") == []
        assert kinds(told.events).count("stale") == count / 2


def test_a_commit_that_waits_raises_if_the_transactions_own_record_is_damaged(
    lake: lv.Lake,
) -> None:
    store(lake, marker_key("x", 1), marker())
    store(lake, record_key(YEAR_2100), record(lease_seconds=1e9))
    txn = lake.transaction(R | CT)
    txn.update("x", {"balance": "0"}, "id = 0")
    store(lake, record_key(txn.id), b"{")
    with pytest.raises(lv.CorruptObject, match=txn.id):
        txn.commit()  # the commit waits, so it writes its wait edges into the record
    txn.abort()
    assert tickets(lake, "x") == [1]
    assert records(lake) == [record_key(YEAR_2100)]


def test_a_transaction_takes_a_new_place_if_its_marker_was_deleted(place: Place) -> None:
    quick = lv.Settings(wait_poll_seconds=0.02, wait_poll_cap_seconds=0.05)
    with (
        place.connect(settings=quick) as one,
        place.connect(settings=quick) as two,
    ):
        first, second = one.transaction(R | CT | I), two.transaction(R | CT | I)
        first.update("x", {"balance": "balance + 1"}, "id = 0")
        second.update("x", {"balance": "balance + 1"}, "id = 0")
        inside(one).run(delete(marker_key("x", 1)))
        with beside(first.commit):
            second.commit()
        assert one.snapshot().read("x", where="id = 0")["balance"].to_pylist() == [102]
        assert left_over(one, "x") == []


def test_a_reservation_of_an_ended_transaction_delays_no_other(place: Place) -> None:
    """The next commit drops a reservation whose holder has no record any more."""
    with place.connect() as lake:
        gets_through(lake, R | I)  # where other clients made the tables, this makes the HEAD
        head = head_of(place)
        forged = msgspec.structs.replace(
            head,
            reserved=(Reservation(YEAR_1970, ("x", "nowhere")), Reservation(YEAR_2100, ("x",))),
        )
        store(lake, HEAD_KEY, encode(forged))
    with place.connect() as lake:
        assert gets_through(lake, R | I) < 5
        assert head_of(place).reserved == ()

"""Placing, listing, reading and freeing markers on a store, with and without faults."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from lakevilla.clock import SystemClock
from lakevilla.errors import CorruptObject, StoreError
from lakevilla.ids import Ids
from lakevilla.markers import repo
from lakevilla.markers.marker import (
    LAST_TICKET,
    Listed,
    Marker,
    Unreadable,
    marker_key,
    markers_prefix,
)
from lakevilla.markers.queue import ahead
from lakevilla.markers.repo import (
    Placed,
    free,
    list_markers,
    load_markers,
    place,
    withdraw,
)
from lakevilla.settings import Settings
from lakevilla.store.base import ABSENT, Failure, Found, ObjectInfo, Refused, Stored, Token
from lakevilla.store.codec import encode
from lakevilla.store.effects import Program
from lakevilla.store.runner import Runner
from lakevilla.sublogs.record import Access, Ticket
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.faults import Fault, RandomFaults, ScriptedFaults, Strike
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.store import SimulatedStore
from tests.support.search import how_many

T = "sales/orders"
IDS = Ids(SystemClock(), random.Random(1))
QUICK = Settings(retry_base_seconds=0.0, retry_cap_seconds=0.0, retry_limit=3)


@pytest.fixture
def store() -> SimulatedStore:
    return SimulatedStore()


@pytest.fixture
def runner(store: SimulatedStore) -> Runner:
    return Runner(store, IDS, QUICK)


def put_now(store: SimulatedStore, key: str, body: bytes) -> None:
    assert isinstance(store.put(key, body, ABSENT), Stored)


def put_marker(store: SimulatedStore, number: int, access: Access = "write", **other: Any) -> str:
    """Store a marker of a new transaction, and return its id."""
    txn = IDS.txn_id()
    marker = msgspec.structs.replace(Marker(1, IDS.nonce(), txn, T, number, access), **other)
    put_now(store, marker_key(T, number), encode(marker))
    return txn


def enter(runner: Runner, txn: str, access: Access = "write", table: str = T) -> Placed:
    return runner.run(place(table, txn, access, IDS, runner.run(list_markers(table))))


def numbers(listed: list[Listed]) -> list[int]:
    return [entry.number for entry in listed]


# ------------------------------------------------------------ placing and freeing


def test_a_new_ticket_is_one_more_than_the_highest_present(
    store: SimulatedStore, runner: Runner
) -> None:
    one, two = IDS.txn_id(), IDS.txn_id()
    assert enter(runner, one).ticket == Ticket(T, 1, "write")
    put_marker(store, 7)
    assert enter(runner, two, "append") == Placed(Ticket(T, 8, "append"))
    listed = runner.run(list_markers(T))
    assert numbers(listed) == [1, 7, 8]
    bodies = [marker for _, marker in runner.run(load_markers(T, listed, {}))]
    assert [b.ticket for b in bodies if isinstance(b, Marker)] == [1, 7, 8]
    assert isinstance(bodies[2], Marker)
    assert (bodies[2].txn, bodies[2].access, bodies[2].table) == (two, "append", T)


def test_ticket_numbers_start_again_after_a_queue_has_become_empty(runner: Runner) -> None:
    txn = IDS.txn_id()
    first = enter(runner, txn).ticket
    second = enter(runner, txn, "read", "t2").ticket
    runner.run(free([first, ("t2", second.number)]))
    assert enter(runner, txn).ticket == first


def test_objects_with_other_names_are_ignored_in_a_queue(
    store: SimulatedStore, runner: Runner
) -> None:
    names = ["x.json", "0.json", f"{10**20 - 1}.json", f"{0:020}.json", f"{5:020}.json.tmp"]
    for name in names:
        put_now(store, f"{markers_prefix(T)}/{name}", b"?")
    put_now(store, f"{markers_prefix(T)}/old/{9:020}.json", b"?")
    put_now(store, marker_key(f"{T}/inner", 9), b"?")
    assert runner.run(list_markers(T)) == []
    assert enter(runner, IDS.txn_id()).ticket.number == 1


def test_taken_numbers_are_skipped_and_the_transactions_that_have_them_are_returned(
    store: SimulatedStore, runner: Runner
) -> None:
    txn = IDS.txn_id()
    before = runner.run(list_markers(T))
    others = [put_marker(store, 1), put_marker(store, 2, "append")]
    put_now(store, marker_key(T, 3), b"{")
    put_marker(store, 4, format=2)
    with runner.requests.counting() as made:
        placed = runner.run(place(T, txn, "append", IDS, before))
    assert placed.ticket == Ticket(T, 5, "append")
    assert numbers([listed for listed, _ in placed.met]) == [1, 2, 3, 4]
    assert [m.txn for _, m in placed.met if isinstance(m, Marker)] == others
    unreadable = [m for _, m in placed.met if isinstance(m, Unreadable)]
    assert [(u.number, u.newer) for u in unreadable] == [(3, False), (4, True)]
    # The markers found need no second read: each refused create has returned one.
    assert (made.put, made.get, made.list) == (5, 4, 0)
    # They have the same tokens as in a list, so that the next list need not be read.
    assert [listed for listed, _ in placed.met] == runner.run(list_markers(T))[:4]
    waits_for = [listed.number for listed, _ in ahead(placed.ticket, placed.met, txn)]
    assert waits_for == [1, 3, 4]


def test_a_refused_create_without_a_body_is_followed_by_a_read(store: SimulatedStore) -> None:
    put_marker(store, 1)
    assert store.put(marker_key(T, 1), b"", ABSENT) == Refused(None)
    placed = run_now(store, place(T, IDS.txn_id(), "write", IDS, []))
    assert placed.ticket.number == 2
    assert numbers([listed for listed, _ in placed.met]) == [1]


def test_transactions_that_take_places_at_the_same_moment_send_few_requests_each(
    store: SimulatedStore,
) -> None:
    """All of them have listed the same queue, and their creates reach the store in turns."""
    answers: dict[Any, Any] = {place(T, IDS.txn_id(), "write", IDS, []): None for _ in range(400)}
    tickets, requests = [], Counter[Any]()
    while answers:
        for program, answer in list(answers.items()):
            try:
                effect = program.send(answer)
            except StopIteration as end:
                tickets.append(end.value.ticket.number)
                del answers[program]
                continue
            requests[program] += 1
            answers[program] = run_now(store, _alone(effect))
    assert len(set(tickets)) == 400
    assert max(requests.values()) <= 2 * 40


def _alone(effect: Any) -> Program[Any]:
    return (yield effect)


def test_a_transaction_that_finds_no_free_number_gets_an_error_with_advice(
    store: SimulatedStore, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repo, "PLACES_TRIED", 4)
    for number in range(1, 5):
        put_marker(store, number)
    txn = IDS.txn_id()
    with pytest.raises(StoreError, match=f"table {T}.* from 1 on .*run it again") as raised:
        runner.run(place(T, txn, "write", IDS, []))
    assert (raised.value.table, raised.value.txn_id) == (T, txn)
    assert enter(runner, txn).ticket.number == 5


@pytest.mark.parametrize("absurd", [LAST_TICKET, LAST_TICKET - 5, LAST_TICKET // 10])
def test_a_queue_works_whatever_number_a_foreign_file_has(
    store: SimulatedStore, runner: Runner, absurd: int
) -> None:
    put_marker(store, absurd)
    placed = [enter(runner, IDS.txn_id()).ticket.number for _ in range(3)]
    assert placed == sorted(placed)
    assert numbers(runner.run(list_markers(T))) == sorted([absurd, *placed])


# ----------------------------------------------------------- doubtful creates


class Doubtful(SimulatedStore):
    """A store that answers creates under some names by a time-out, and stores only some of them."""

    def __init__(self, names: dict[int, bool]) -> None:
        super().__init__()
        self.doubts = {marker_key(T, number): lands for number, lands in names.items()}
        self.reachable = True

    def put(self, key: str, body: bytes, condition: Any) -> Any:
        if key in self.doubts and self.reachable:
            if self.doubts[key]:
                super().put(key, body, condition)
            return Failure("timed out")
        return super().put(key, body, condition)

    def get(self, key: str, known: Any = None, byte_range: Any = None) -> Any:
        if key in self.doubts and self.reachable:
            return Failure("timed out")
        return super().get(key, known, byte_range)


def test_a_marker_whose_creation_is_in_doubt_is_skipped_and_deleted_later() -> None:
    store = Doubtful({1: True, 2: False})
    runner = Runner(store, IDS, QUICK)
    txn = IDS.txn_id()
    placed = enter(runner, txn)
    assert placed == Placed(Ticket(T, 3, "write"), (), (1, 2))
    store.reachable = False
    listed = runner.run(list_markers(T))
    assert numbers(listed) == [1, 3]
    # The one that was stored is ours: a transaction does not wait for itself.
    assert ahead(placed.ticket, runner.run(load_markers(T, listed, {})), txn) == []
    # The one that was not stored is now another transaction's: it is not ours to delete.
    put_marker(store, 2)
    runner.run(withdraw(txn, [(T, number) for number in placed.doubtful]))
    assert numbers(runner.run(list_markers(T))) == [2, 3]
    runner.run(withdraw(txn, []))


def test_placing_gives_up_soon_if_the_store_answers_no_create() -> None:
    store = Doubtful(dict.fromkeys(range(1, 100), False))
    runner = Runner(store, IDS, QUICK)
    with pytest.raises(StoreError, match=r"00000000000000000003\.json open \(.*run it again"):
        enter(runner, IDS.txn_id())
    assert not store.objects


def test_a_lost_response_to_a_create_leaves_one_marker(store: SimulatedStore) -> None:
    for fault in (Fault.APPLIED_503, Fault.APPLIED_CUT):
        simulation = Simulation(0, faults=ScriptedFaults({("a", 2): Strike(fault)}))
        client = simulation.add("a", enter_and_tell)
        simulation.run()
        assert simulation.fired[fault] == 1
        assert client.result == Placed(Ticket(T, 1, "write"))
        assert list(simulation.store.objects) == [marker_key(T, 1)]
        simulation.dispose()


def enter_and_tell(client: Client) -> Program[Placed]:
    listed = yield from list_markers(T)
    return (yield from place(T, client.ids.txn_id(), "write", client.ids, listed))


# ------------------------------------------------------------------ contention

UNPLEASANT = {
    Fault.APPLIED_503: 0.05,
    Fault.APPLIED_CUT: 0.05,
    Fault.REFUSED_503: 0.05,
    Fault.THROTTLED_429: 0.05,
    Fault.CONFLICT_409: 0.05,
    Fault.DELAYED_WRITE: 0.05,
    Fault.PAUSE: 0.02,
    Fault.STALE_LIST: 0.2,
}


def test_concurrent_transactions_get_different_tickets_whatever_requests_fail() -> None:
    fired: Counter[Fault] = Counter()
    left_behind = 0
    for seed in range(how_many(70, whole=200)):
        placed, simulation = placed_at_once(seed, clients=12)
        tickets = {one.ticket.number: txn for txn, one in placed.items()}
        assert len(tickets) == len(placed) >= 6, "two hold one ticket, or hardly any got one"
        simulation.land_delayed_writes()
        store = simulation.store
        present = run_now(store, load_markers(T, run_now(store, list_markers(T)), {}))
        owners = {marker.ticket: marker.txn for _, marker in present if isinstance(marker, Marker)}
        assert len(owners) == len(present)
        assert owners.items() >= tickets.items(), "a ticket that is held has no marker"
        for number in owners.keys() - tickets.keys():
            if owners[number] in placed:
                assert number in placed[owners[number]].doubtful
                left_behind += 1
        for txn, one in placed.items():
            run_now(store, withdraw(txn, [(T, number) for number in one.doubtful]))
        run_now(store, free(one.ticket for one in placed.values()))
        present = run_now(store, load_markers(T, run_now(store, list_markers(T)), {}))
        assert not {m.txn for _, m in present if isinstance(m, Marker)} & placed.keys()
        fired += simulation.fired
        simulation.dispose()
    assert {fault for fault in UNPLEASANT if fired[fault] < 5} == set()
    assert left_behind >= 5


def placed_at_once(seed: int, clients: int) -> tuple[dict[str, Placed], Simulation]:
    """Place tickets by clients that give up after few attempts; clients that have failed are
    left out.
    """
    faults = RandomFaults(UNPLEASANT, random.Random(seed))
    simulation = Simulation(seed, faults=faults, settings=Settings(retry_limit=3))
    placed: dict[str, Placed] = {}

    def program(client: Client) -> Program[None]:
        txn = client.ids.txn_id()
        with contextlib.suppress(StoreError):
            listed = yield from list_markers(T)
            placed[txn] = yield from place(T, txn, "write", client.ids, listed)

    for number in range(clients):
        simulation.add(f"c{number}", program)
    simulation.run()
    return placed, simulation


def test_each_transaction_knows_all_transactions_ahead_of_it_without_faults() -> None:
    """Each transaction lists an empty queue first, so it sees all lower tickets when it creates
    its own.
    """
    for seed in range(20):
        simulation = Simulation(seed)
        placed: list[Placed] = []

        def program(client: Client, placed: list[Placed] = placed) -> Program[None]:
            placed.append((yield from place(T, client.ids.txn_id(), "write", client.ids, [])))

        for number in range(8):
            simulation.add(f"c{number}", program)
        simulation.run()
        simulation.dispose()
        assert sorted(one.ticket.number for one in placed) == list(range(1, 9))
        for one in placed:
            assert numbers([listed for listed, _ in one.met]) == list(range(1, one.ticket.number))


# -------------------------------------------------------------------- reading


def test_each_marker_is_read_once(store: SimulatedStore, runner: Runner) -> None:
    known: dict[tuple[str, Token], Marker | Unreadable] = {}
    put_marker(store, 1)
    put_now(store, marker_key(T, 2), b"")
    listed = runner.run(list_markers(T))
    first = runner.run(load_markers(T, listed, known))
    put_marker(store, 3)
    with runner.requests.counting() as made:
        again = runner.run(load_markers(T, runner.run(list_markers(T)), known))
    assert (made.list, made.get, made.total) == (1, 1, 2)
    assert again[:2] == first
    assert numbers([entry for entry, _ in again]) == [1, 2, 3]
    unreadable = first[1][1]
    assert isinstance(unreadable, Unreadable)
    assert isinstance(unreadable.error, CorruptObject)
    assert unreadable.error.key == marker_key(T, 2)


def test_a_marker_that_was_deleted_after_the_list_is_left_out(
    store: SimulatedStore, runner: Runner
) -> None:
    put_marker(store, 1)
    put_marker(store, 2)
    listed = runner.run(list_markers(T))
    runner.run(free([(T, 1)]))
    assert numbers([entry for entry, _ in runner.run(load_markers(T, listed, {}))]) == [2]


def test_a_marker_that_was_replaced_after_the_list_is_read_again(
    store: SimulatedStore, runner: Runner
) -> None:
    known: dict[tuple[str, Token], Marker | Unreadable] = {}
    put_marker(store, 1)
    listed = runner.run(list_markers(T))
    runner.run(free([(T, 1)]))
    second = put_marker(store, 1)
    # Between the list and the read: the present marker counts, under its own token.
    ((entry, marker),) = runner.run(load_markers(T, listed, known))
    assert isinstance(marker, Marker)
    assert marker.txn == second
    assert entry == runner.run(list_markers(T))[0] != listed[0]
    assert known == {}
    runner.run(load_markers(T, [entry], known))
    runner.run(free([(T, 1)]))
    third = put_marker(store, 1)
    ((_, marker),) = runner.run(load_markers(T, runner.run(list_markers(T)), known))
    assert isinstance(marker, Marker)
    assert marker.txn == third


def test_markers_are_read_each_time_from_a_store_that_lists_no_tokens() -> None:
    class Untagged(SimulatedStore):
        def list(self, prefix: str, *bounds: str | None) -> list[ObjectInfo]:
            infos = super().list(prefix, *bounds)
            return [ObjectInfo(i.key, i.size, Token(None), i.modified_seconds) for i in infos]

    store = Untagged()
    runner = Runner(store, IDS, QUICK)
    known: dict[tuple[str, Token], Marker | Unreadable] = {}
    for _ in range(2):
        txn = put_marker(store, 1)
        loaded = runner.run(load_markers(T, runner.run(list_markers(T)), known))
        assert [marker.txn for _, marker in loaded if isinstance(marker, Marker)] == [txn]
        runner.run(free([(T, 1)]))


def test_ten_thousand_markers_are_listed_read_and_freed(
    store: SimulatedStore, runner: Runner
) -> None:
    for number in range(1, 10_001):
        put_marker(store, number, "read" if number % 2 else "write")
    known: dict[tuple[str, Token], Marker | Unreadable] = {}
    txn = IDS.txn_id()
    with runner.requests.counting() as made:
        listed = runner.run(list_markers(T))
        placed = runner.run(place(T, txn, "read", IDS, listed))
        present = runner.run(load_markers(T, listed, known))
        waits_for = ahead(placed.ticket, present, txn)
    assert placed.ticket.number == 10_001
    assert numbers([entry for entry, _ in waits_for]) == list(range(2, 10_001, 2))
    assert (made.list, made.put, made.get) == (1, 1, 10_000)
    with runner.requests.counting() as made:
        assert runner.run(load_markers(T, listed, known)) == present
    assert made.total == 0
    runner.run(free((T, entry.number) for entry in listed))
    assert list(store.objects) == [marker_key(T, 10_001)]


def test_reading_markers_and_freeing_markers_take_one_round_each(store: SimulatedStore) -> None:
    """One round each, however many markers there are."""
    for number in (1, 2, 3):
        put_marker(store, number)
    listed = run_now(store, list_markers(T))
    for program in (load_markers(T, listed, {}), free((T, n) for n in (1, 2, 3))):
        assert rounds(store, program) == 1
    assert run_now(store, free([])) is None
    assert store.objects == {}


def rounds(store: SimulatedStore, program: Program[Any]) -> int:
    made = 0

    def counted() -> Program[Any]:
        nonlocal made
        answer = None
        while True:
            try:
                effect = program.send(answer)
            except StopIteration as end:
                return end.value
            made += 1
            answer = yield effect

    run_now(store, counted())
    return made


def test_a_stored_marker_has_the_expected_fields(store: SimulatedStore, runner: Runner) -> None:
    placed = enter(runner, IDS.txn_id())
    found = store.get(marker_key(T, placed.ticket.number))
    assert isinstance(found, Found)
    fields = msgspec.json.decode(found.body)
    assert list(fields) == ["format", "nonce", "txn", "table", "ticket", "access"]
    assert len(fields["nonce"]) == 32

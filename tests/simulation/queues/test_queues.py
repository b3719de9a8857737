"""Queues among simulated clients: scenarios 8 to 11 of the design's model, and its deadlocks."""

import pyarrow as pa
import pytest

from lakevilla.deadlock import wait as waiting
from lakevilla.errors import AlreadyCommitted, ConflictError, ForeignConflict, TransactionAborted
from lakevilla.global_log.repo import load_head
from lakevilla.maintenance import recovery
from lakevilla.markers.marker import markers_prefix, ticket_of
from lakevilla.markers.places import leave
from lakevilla.settings import Settings
from lakevilla.store.effects import Get, Sleep, sleep
from lakevilla.sublogs.operations import Guard
from lakevilla.sublogs.own_record import renew
from lakevilla.sublogs.record import record_key
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.late_reads import PLACE_AFTER_SECONDS
from lakevilla.transaction.state.values import Feature, KeyUse
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.read_write import append, execute
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import SCHEMA, context_of
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.heartbeat import think
from tests.support.simulated.commits import (
    RCT,
    RCTI,
    RI,
    Member,
    Process,
    Runner,
    add_to,
    alone,
    balances,
    begin,
    end,
    lake,
    read,
    simulation_client,
)

HEAD = "HEAD.json"
FOUR = ("a", "b", "c", "d")
QUEUED = pytest.mark.parametrize("features", [RCT, RCTI], ids=["R|CT", "R|CT|I"])


def settled(simulation, *tables):
    """Return the balances after recovery, and check the invariants of the logs."""
    tables = tables or ("a", "b")
    alone(simulation, lambda client: recovery.recover(context_of(client)), "recoverer")
    invariants.every_table_is_readable(simulation.store, tables)
    invariants.no_id_commits_twice(simulation.store, tables)
    invariants.tables_follow_head(simulation.store, tables)
    invariants.all_or_nothing(simulation.store, tables)
    invariants.every_marker_ends(simulation.store, tables)
    return balances(simulation, *tables)


def _markers(simulation):
    return sorted(key for key in simulation.store.objects if "/_lakevilla/markers/" in key)


def increment(table="a", amount=1, features=RI):
    def program(client):
        txn = begin(client, features)
        yield from add_to(txn, table, amount)
        return (yield from commit(txn))

    return program


def increment_body(table="a", amount=1):
    def body(txn):
        yield from add_to(txn, table, amount)

    return body


def set_from_read(table="a", amount=1, *, pause=0.0):
    """Add to the balance that it has read: the sum would show another client's lost update."""

    def body(txn):
        seen = yield from read(txn, table, "id = 0")
        yield from think(txn, pause)
        yield from add_to(txn, table, amount)
        return seen

    return body


def two_steps(first, second, *, pause=2.0, amount=1):
    """Change one table, pause while other clients take places, and change the next table."""

    def body(txn):
        yield from add_to(txn, first, amount)
        yield from sleep(pause)
        yield from add_to(txn, second, amount)

    return body


# ------------------------------------------------------------------ 8


@QUEUED
def test_scenario_8_queued_and_isolated_transactions_lose_no_update(features):
    simulation = lake()

    def program(client):
        txn = begin(client, features)
        yield from read(txn, "a", "id = 0")
        yield from add_to(txn, "a", 5)
        return (yield from commit(txn))

    queued = Process(simulation, program, "queued").until(HEAD)
    alone(simulation, increment("a", 7), "isolated")
    with pytest.raises(ConflictError):
        queued.finish()
    assert balances(simulation)["a"][0] == 107


@QUEUED
def test_scenario_8_queued_update_that_an_isolated_one_overtakes_is_redone(features):
    simulation = lake()
    queued = Process(simulation, increment("a", 5, features), "queued").until(HEAD)
    alone(simulation, increment("a", 7), "isolated")
    queued.finish()
    assert settled(simulation)["a"][0] == 112


@pytest.mark.parametrize("features", [RCT, RI, RCTI], ids=["R|CT", "R|I", "R|CT|I"])
def test_scenario_8_a_recoverable_commit_in_between_is_reported_if_the_table_has_no_guard(
    features,
):
    simulation = lake()
    first = Process(simulation, increment("a", 5, features), "first").until("a/_delta_log")
    alone(simulation, increment("a", 7, Feature.R), "plain")
    with pytest.raises(ForeignConflict):
        first.finish()
    assert settled(simulation)["a"][0] == 112


@pytest.mark.parametrize("features", [RCT, RI, RCTI], ids=["R|CT", "R|I", "R|CT|I"])
def test_scenario_8_a_recoverable_transaction_loses_no_update_unreported_on_a_guarded_table(
    features,
):
    simulation = lake()

    def guard(client):
        txn = begin(client)
        yield from execute(txn, Guard("a", True), "guard")
        return (yield from commit(txn))

    alone(simulation, guard, "operator")
    first = Process(simulation, increment("a", 5, features), "first").until("a/_delta_log")
    alone(simulation, increment("a", 7, Feature.R), "plain")
    first.finish()  # no ForeignConflict: the other transaction has committed through HEAD
    assert settled(simulation)["a"][0] == 112


# ------------------------------------------------------------------ deadlocks


@QUEUED
@pytest.mark.parametrize("members", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_the_youngest_of_a_ring_of_waits_gives_way_and_all_commit(members, seed, features):
    simulation = lake(tables=FOUR, seed=seed)
    tables = FOUR[:members]
    ring = [
        Member(simulation, f"m{n}", two_steps(tables[n], tables[(n + 1) % members]), features)
        for n in range(members)
    ]
    simulation.run()
    assert [member.result for member in ring] == ["committed"] * members
    shifts = [event for member in ring for event in member.kinds("shift")]
    youngest = max(member.ids[0] for member in ring)
    assert [event.txn_id for event in shifts] == [youngest]
    assert not any(event.detail == {} for m in ring for event in m.kinds("waiting"))
    # Long before any wait times out or any lease ends.
    assert max(member.ended for member in ring) < simulation.settings.lease_seconds
    found = settled(simulation, *FOUR)
    assert [found[table][0] for table in tables] == [102] * members


@QUEUED
def test_a_ring_that_only_transitive_waits_show_is_broken_by_its_youngest(features):
    # No two members wait for each other directly: m0 -> m1 -> m2 -> m3 -> m0. The bystander is
    # younger than all and waits for one of them; it is not part of the ring.
    simulation = lake(tables=FOUR)
    ring = [
        Member(simulation, f"m{n}", two_steps(FOUR[n], FOUR[(n + 1) % 4], pause=3.0), features)
        for n in range(4)
    ]
    late = increment_body("a", 10)
    bystander = Member(simulation, "bystander", late, features, after=5.0)
    simulation.run()
    assert [member.result for member in [*ring, bystander]] == ["committed"] * 5
    assert bystander.kinds("waiting")
    shifts = [e.txn_id for member in [*ring, bystander] for e in member.kinds("shift")]
    assert shifts == [max(member.ids[0] for member in ring)]
    assert settled(simulation, *FOUR)["a"][0] == 112


@QUEUED
@pytest.mark.parametrize("seed", range(4))
def test_a_ring_of_waits_is_broken_though_each_member_watches_only_the_front_of_its_queue(
    monkeypatch, seed, features
):
    monkeypatch.setattr(waiting, "_FRONT", 1)
    simulation = lake(tables=FOUR, seed=seed)

    def first(txn):
        for table in FOUR[:3]:
            yield from add_to(txn, table, 1)
        yield from think(txn, 8.0)

    # The ring comes to the front of its queues only when this one ends. Others are between its
    # members in each queue, and behind them.
    early = Member(simulation, "early", first, features)
    ring = [
        Member(
            simulation,
            f"m{n}",
            two_steps(FOUR[n], FOUR[(n + 1) % 3], pause=3.0),
            features,
            after=1.0,
        )
        for n in range(3)
    ]
    others = [
        Member(simulation, f"o{n}", increment_body(FOUR[n % 3]), features, after=2.0 + n / 4)
        for n in range(9)
    ]
    simulation.run()
    everyone = [early, *ring, *others]
    assert [member.result for member in everyone] == ["committed"] * 13
    assert any(member.kinds("shift") for member in ring)
    assert not any(event.detail == {} for one in everyone for event in one.kinds("waiting"))
    found = settled(simulation, *FOUR)
    assert [found[table][0] for table in FOUR[:3]] == [106] * 3


# ------------------------------------------------------------------ 9


@QUEUED
def test_scenario_9_a_finished_transaction_that_two_waiters_still_name_makes_no_cycle(features):
    simulation = lake()

    def both(txn):
        yield from add_to(txn, "a", 1)
        yield from add_to(txn, "b", 1)

    def slow(txn):
        yield from both(txn)
        yield from sleep(6.0)

    holder = Member(simulation, "holder", slow, features)
    one = Member(simulation, "one", both, features, after=1.0)
    two = Member(simulation, "two", both, features, after=3.0)
    simulation.run()
    assert [m.result for m in (holder, one, two)] == ["committed"] * 3
    # The second transaction has named the first and the holder, and the holder ended first.
    assert holder.ended < one.ended < two.ended
    assert {holder.ids[0], one.ids[0]} == set(two.kinds("waiting")[0].detail["holders"])
    assert not one.kinds("shift")
    assert not two.kinds("shift")
    assert settled(simulation)["a"][0] == 103


@QUEUED
@pytest.mark.parametrize("seed", range(4))
def test_scenario_9_a_shifted_transaction_that_an_older_edge_still_names_does_not_shift_again(
    features, seed
):
    simulation = lake(seed=seed)
    old = Member(simulation, "old", two_steps("a", "b", pause=5.0), features)
    young = Member(simulation, "young", two_steps("b", "a", pause=5.0), features, after=2.0)

    def behind(txn):
        yield from sleep(2.5)
        yield from add_to(txn, "b", 1)

    # This transaction is older than the one that gives way, and behind it.
    named = Member(simulation, "named", behind, features, after=1.0)
    simulation.run()
    members = (old, young, named)
    assert [m.result for m in members] == ["committed"] * 3
    # The transaction behind ``young``, for which ``young`` waits now, had named ``young``.
    assert young.ids[0] in named.kinds("waiting")[0].detail["holders"]
    assert [event.txn_id for m in members for event in m.kinds("shift")] == [young.ids[0]]
    assert settled(simulation)["b"][0] == 103


# ------------------------------------------------------------------ 10


@QUEUED
def test_scenario_10_no_transaction_shifts_and_no_update_is_lost_if_all_waits_time_out_at_once(
    features,
):
    simulation = lake(settings=Settings(wait_timeout_seconds=5.0))
    holder = Member(simulation, "holder", two_steps("a", "b", pause=60.0), features)
    waiters = [Member(simulation, f"w{n}", increment_body(), features, after=2.0) for n in range(4)]
    simulation.run()
    assert [m.result for m in (holder, *waiters)] == ["committed"] * 5
    for member in waiters:
        assert [e.detail for e in member.kinds("waiting")][-1] == {}
        assert not member.kinds("shift")
        assert member.ended < 30.0
    assert settled(simulation)["a"][0] == 105


@QUEUED
def test_scenario_10_a_rerun_transaction_keeps_its_id_and_its_place(features):
    simulation = lake()
    first = Member(simulation, "first", set_from_read(pause=10.0), features)
    second = Member(simulation, "second", increment_body(), features, after=2.0)
    simulation.add("optimist", lambda client: later(client, 5.0))
    simulation.run()
    assert (first.result, second.result) == ("committed", "committed")
    assert len(first.ids) == 2
    assert len(set(first.ids)) == 1
    # The second transaction came later and has waited until the first one was through.
    assert first.ended < second.ended
    assert not any(e.detail == {} for e in second.kinds("waiting"))
    assert settled(simulation)["a"][0] == 112


@QUEUED
def test_a_transaction_that_lost_keeps_its_place_until_its_rerun(features):
    simulation = lake()
    # The transaction's caller takes longer than a lease to rerun it; its heartbeat goes on.
    body = set_from_read(pause=10.0)
    first = Member(simulation, "first", body, features, rest=100.0)
    second = Member(simulation, "second", increment_body(), features, after=2.0)
    simulation.add("optimist", lambda client: later(client, 5.0))
    simulation.run()
    assert (first.result, second.result) == ("committed", "committed")
    assert 110.0 < first.ended < second.ended
    assert not second.kinds("stale")


@QUEUED
def test_a_transaction_that_pauses_between_reading_and_writing_commits_before_later_ones(features):
    simulation = lake()
    thinker = Member(simulation, "thinker", set_from_read(pause=10.0), features)
    others = [Member(simulation, f"o{n}", increment_body(), features, after=1.0) for n in range(3)]
    simulation.run()
    assert [m.result for m in (thinker, *others)] == ["committed"] * 4
    assert len(thinker.ids) == 1, "it has lost to nobody"
    assert all(thinker.ended < other.ended for other in others)
    assert settled(simulation)["a"][0] == 104


@QUEUED
@pytest.mark.parametrize("ends", ["by reading alone", "by a write", "by an abort"])
def test_a_place_taken_while_its_owner_paused_is_removed_with_the_transaction(features, ends):
    simulation = lake()

    def program(client):
        txn = begin(client, features)
        yield from read(txn, "a", "id = 0")
        yield from think(txn, 1.0)
        held = _markers(simulation)
        if ends == "by an abort":
            yield from end(txn)
            return held
        if ends == "by a write":
            yield from add_to(txn, "a", 1)
        yield from commit(txn)
        return held

    assert len(alone(simulation, program, "one")) == 1
    assert _markers(simulation) == []


@QUEUED
def test_a_short_read_only_transaction_sends_no_requests_to_the_queues(features):
    simulation = lake()

    def program(client):
        txn = begin(client, features)
        yield from read(txn, "a", "id = 0")
        yield from think(txn, PLACE_AFTER_SECONDS / 2)
        yield from read(txn, "b", "id = 0")
        yield from commit(txn)

    asked = []
    reader = Process(simulation, program, "reader")
    while not reader.done:
        request, _ = reader.step()
        asked.append(getattr(request, "key", "") or getattr(request, "prefix", ""))
    reader.finish()
    assert not [key for key in asked if "/markers" in key or "/txns" in key]


@QUEUED
@pytest.mark.parametrize("write", ["update", "append"])
def test_the_first_write_of_a_transaction_takes_places_in_the_tables_that_it_has_read(
    features, write
):
    simulation = lake()

    def program(client):
        txn = begin(client, features)
        yield from read(txn, "a", "id = 0")
        assert _markers(simulation) == []
        if write == "update":
            yield from add_to(txn, "b", 1)
        else:
            rows = pa.table({"id": [7], "balance": [0], "items": [""]}, schema=SCHEMA)
            yield from append(txn, "b", rows.to_reader())
        held = _markers(simulation)
        yield from commit(txn)
        return held

    held = [key.split("/")[0] for key in alone(simulation, program, "one")]
    assert held == (["a", "b"] if write == "update" else ["a"])
    assert _markers(simulation) == []


@QUEUED
def test_a_key_of_a_rerun_transaction_counts_as_committed_for_its_own_process_too(features):
    simulation = lake()
    told = []

    def twice(client):
        runner = Runner(client)
        body = set_from_read(pause=10.0)
        told.append((yield from runner.run(body, features, key=KeyUse("k", None))))
        try:
            told.append((yield from runner.run(body, features, key=KeyUse("k", None))))
        except AlreadyCommitted:
            told.append("done already")

    simulation.add("keyed", twice)
    simulation.add("optimist", lambda client: later(client, 5.0))
    simulation.run()
    assert told == ["committed", "done already"]
    assert settled(simulation)["a"][0] == 111


@QUEUED
@pytest.mark.parametrize("dead", [8, 30])
def test_places_of_dead_owners_are_all_given_up_together(features, dead):
    simulation = lake()

    def die(client):
        txn = begin(client, features)
        yield from add_to(txn, "a", 100)

    for number in range(dead):
        alone(simulation, die, f"dead {number}")
    waiter = Member(simulation, "waiter", increment_body(), features)
    simulation.run()
    assert waiter.result == "committed"
    lease = simulation.settings.lease_seconds
    # The lease of those behind the front begins when the front is found dead.
    leases = 1 if dead == 8 else 2
    assert leases * lease < waiter.ended < (leases + 0.5) * lease
    assert len(waiter.kinds("stale")) == dead
    # Waiting clients have deleted the markers for later ones, before any client recovers.
    assert not [key for key in simulation.store.objects if "/markers/" in key]
    assert settled(simulation)["a"][0] == 101


def test_edges_are_written_before_the_records_of_other_transactions_are_read():
    simulation = lake()
    holder = Process(simulation, two_steps_of("a", "b"), "holder").until("HEAD.json")
    waiter = Process(simulation, increment("a", 1, RCTI), "waiter")
    waiter.until("_lakevilla/txns")  # the record, which is written before the first marker
    mine = waiter.next.key
    waiter.step()
    seen = []
    while not waiter.done and not isinstance(waiter.next, Sleep):
        request, _ = waiter.step()
        if "/txns/" in getattr(request, "key", ""):
            seen.append((type(request).__name__, request.key == mine))
    # Of the clients that close a cycle, the last to write its edge sees the whole cycle.
    assert seen[:2] == [("Put", True), ("Get", False)]
    holder.finish()
    waiter.finish()
    assert settled(simulation)["a"][0] == 102


def two_steps_of(first, second):
    def program(client):
        txn = begin(client, RCTI)
        yield from two_steps(first, second)(txn)
        return (yield from commit(txn))

    return program


def later(client, seconds, amount=10):
    yield from sleep(seconds)
    yield from increment("a", amount)(client)


def storm(client, until, context):
    """Make short optimistic commits on one table, one after the other."""
    simulation = client.simulation
    count = 0
    while simulation.now < until():
        txn = begin(client, RI, context)
        try:
            yield from add_to(txn, "a", 1)
            yield from commit(txn)
            count += 1
        except (ConflictError, TransactionAborted):
            yield from abort(txn)
        yield from sleep(0.2)
    return count


@pytest.mark.parametrize("escalates", [True, False])
def test_scenario_10_an_escalated_transaction_commits_in_spite_of_endless_optimistic_ones(
    escalates,
):
    settings = Settings(escalate_after=3 if escalates else 1000)
    simulation = lake(settings=settings)
    # The transaction reads what the other clients write, and is slow.
    long = Member(simulation, "long", set_from_read(pause=5.0), RI, attempts=8)

    def until():
        return 300.0 if long.ended is None else long.ended + 2.0

    for number in range(3):
        simulation.add(f"s{number}", lambda client: storm(client, until, context_of(client)))
    simulation.run()
    short = sum(client.result for client in simulation.clients[1:])
    if escalates:
        assert long.result == "committed"
        assert len(long.ids) == 4
        assert len(set(long.ids)) == 1
        assert len(long.kinds("escalation")) == 1
        held = alone(simulation, lambda client: load_head(), "asker")
        assert held.head.reserved == ()
        assert settled(simulation)["a"] == {0: 101 + short, 1: 100}
    else:
        assert isinstance(long.result, ConflictError)
        assert settled(simulation)["a"] == {0: 100 + short, 1: 100}


@QUEUED
def test_scenario_10_an_operator_aborts_a_hung_owner_whose_heartbeat_runs(features):
    simulation = lake()
    hung = Member(simulation, "hung", two_steps("a", "b", pause=2000.0), features, attempts=1)
    patient = {"after": 2.0, "wait_timeout_seconds": 1500.0}
    waiter = Member(simulation, "waiter", increment_body(), features, **patient)

    def operator(client):
        yield from sleep(200.0)
        # Without the heartbeat the owner's lease would have ended long ago.
        assert waiter.ended is None
        yield from recovery.abort(context_of(client), hung.ids[0])

    simulation.add("operator", operator)
    simulation.run()
    assert waiter.result == "committed"
    assert waiter.ended < 260.0
    assert not waiter.kinds("stale")
    assert isinstance(hung.result, TransactionAborted)
    assert record_key(hung.ids[0]) not in simulation.store.objects
    assert settled(simulation) == {"a": {0: 101, 1: 100}, "b": {0: 100, 1: 100}}


# ------------------------------------------------------------------ 11


def test_scenario_11_a_reader_of_half_of_an_append_that_bypassed_the_queue_is_refused():
    simulation = lake()

    def reader(client):
        txn = begin(client, RCT)  # the reader is not bound to one state of the lake
        yield from read(txn, "a")
        seen = yield from read(txn, "b")
        assert 7 in seen
        yield from add_to(txn, "b", 1)
        return (yield from commit(txn))

    half = Process(simulation, reader, "reader")
    # The reader has read the state of a, and nothing of b yet: its read of b is of the next HEAD.
    half.until(HEAD, Get)
    half.step()
    half.until(HEAD, Get)

    def appender(client):
        txn = begin(client, RCT, wait_timeout_seconds=0.0)
        for table in ("a", "b"):
            yield from add_row(txn, table)
        return (yield from commit(txn))

    alone(simulation, appender, "appender")
    with pytest.raises(ConflictError):
        half.finish()
    found = balances(simulation)
    assert 7 in found["a"]
    assert 7 in found["b"]
    assert found["b"][0] == 100


def add_row(txn, table):
    rows = pa.table({"id": [7], "balance": [0], "items": [""]}, schema=SCHEMA)
    yield from append(txn, table, rows.to_reader())


@QUEUED
@pytest.mark.parametrize("patience", [0.0, 300.0])
@pytest.mark.parametrize("seed", range(3))
def test_scenario_11_two_queued_that_read_what_the_other_appends_do_not_both_commit(
    features, patience, seed
):
    simulation = lake(seed=seed)

    def crosswise(source, target):
        def body(txn):
            seen = yield from read(txn, source)
            yield from sleep(2.0)
            if 7 not in seen:
                yield from add_row(txn, target)

        return body

    patient = {"wait_timeout_seconds": patience}
    one = Member(simulation, "one", crosswise("a", "b"), features, **patient)
    two = Member(simulation, "two", crosswise("b", "a"), features, **patient)
    simulation.run()
    assert (one.result, two.result) == ("committed", "committed")
    # In serial order the second sees the first's row, and adds none: it was refused and rerun.
    assert sorted(len(m.ids) for m in (one, two)) == [1, 2]
    found = settled(simulation)
    assert (7 in found["a"]) + (7 in found["b"]) == 1


@QUEUED
def test_an_append_waits_for_transactions_that_have_a_place(features):
    simulation = lake()
    order = []

    def work(name, steps, pause):
        def program(client):
            yield from sleep(pause)
            txn = begin(client, features)
            yield from steps(txn)
            yield from sleep(2.0 - 2 * pause)
            yield from commit(txn)
            order.append(name)

        return program

    def append_to_both(txn):
        yield from add_row(txn, "b")
        yield from add_row(txn, "a")

    simulation.add("writer", work("writer", lambda txn: add_to(txn, "a", 1), 0.0))
    simulation.add("appender", work("appender", append_to_both, 0.5))
    simulation.run()
    assert order == ["writer", "appender"]
    assert settled(simulation)["a"] == {0: 101, 1: 100, 7: 0}


@QUEUED
def test_a_client_waits_for_a_marker_that_is_stored_before_its_record(features):
    """A client writes both in one round, so a client that lists in between must list once more
    (note 25).
    """
    simulation = lake()
    first = Process(simulation, increment("a", 1, features), "first").until("_lakevilla/txns/")
    assert markers_at(simulation, "a") == [1]
    second = Process(simulation, increment("a", 10, features), "second")
    go_on_until_it_waits(second)
    assert markers_at(simulation, "a") == [1, 2]
    first.step()  # the record
    for _ in range(8):
        second.step()
    assert markers_at(simulation, "a") == [1, 2], "its place is still its own"
    first.finish()
    second.finish()
    assert settled(simulation)["a"] == {0: 111, 1: 100}


def test_a_transaction_that_gets_ticket_one_before_waiting_ones_moves_behind_them():
    simulation = lake()
    ended = Process(simulation, increment("a", 1, RCTI), "ended").until(HEAD)
    waiting = Process(simulation, increment("a", 10, RCTI), "waiting")
    go_on_until_it_waits(waiting)
    ended.finish()
    assert markers_at(simulation, "a") == [2]
    late = Process(simulation, increment("a", 100, RCTI), "late")
    go_on_until_it_waits(late)
    assert markers_at(simulation, "a") == [2, 3], "it has freed number 1"
    waiting.finish()
    late.finish()
    assert settled(simulation)["a"] == {0: 211, 1: 100}


def go_on_until_it_waits(process):
    while not isinstance(process.next, Sleep):
        process.step()
        assert not process.done, "it has waited for nobody"


def markers_at(simulation, table):
    names = simulation.store.list(markers_prefix(table))
    return sorted(ticket_of(info.key) for info in names)


def test_a_transaction_reads_a_table_s_state_again_after_it_has_taken_its_place():
    """Otherwise it would perform the operation on an outdated state, and again at the commit."""
    simulation = lake()

    def late(client):
        txn = begin(client, RCTI)
        yield from add_to(txn, "a", 1)
        # A commit was decided meanwhile and not published: only HEAD shows it.
        Process(simulation, increment("b"), "rival").until("b/_delta_log")
        yield from add_to(txn, "b", 1)
        yield from commit(txn)
        return txn.work.redos

    assert Process(simulation, late, "late").finish() == 0
    assert settled(simulation) == {"a": {0: 101, 1: 100}, "b": {0: 102, 1: 100}}


@pytest.mark.parametrize("lands", ["before the deletion", "after it"])
def test_a_renewal_that_ends_after_the_record_was_deleted_does_not_create_it_again(lands):
    simulation = lake()
    client = simulation_client(simulation, "one")
    txn = begin(client, RCTI)
    run_now(simulation.store, add_to(txn, "a", 1))
    renewal = renew(txn)
    request = next(renewal)
    if lands == "before the deletion":
        answer = simulation.store.apply(request)
    run_now(simulation.store, leave(txn))
    if lands == "after it":
        answer = simulation.store.apply(request)
    with pytest.raises(StopIteration) as ended:
        renewal.send(answer)
        renewal.send(simulation.store.apply(Get(request.key)))
    assert ended.value.value is True
    assert txn.claims.record is None
    assert not txn.claims.ousted

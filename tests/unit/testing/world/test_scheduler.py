import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from lakevilla.errors import StoreError
from lakevilla.store.base import ABSENT, ANY, Found, Missing, Stored
from lakevilla.store.effects import (
    DeleteObject,
    Gate,
    Get,
    Parallel,
    Put,
    get,
    parallel,
    put,
    sleep,
    wait_at,
)
from lakevilla_testing.world.faults import Fault, ScriptedFaults, Strike
from lakevilla_testing.world.scheduler import ClientFailed, Simulation, Stuck
from tests.support.search import how_many
from tests.support.simulated.counter import check_counter, increment, run_counter, value_of

REPOSITORY = Path(__file__).parents[4]


def test_a_counter_with_nonces_is_correct_under_every_fault():
    fired = Counter()
    for seed in range(150):
        simulation = run_counter(seed)
        check_counter(simulation)
        fired += simulation.fired
        simulation.dispose()
    struck = {
        Fault.APPLIED_503,
        Fault.APPLIED_CUT,
        Fault.REFUSED_503,
        Fault.THROTTLED_429,
        Fault.CONFLICT_409,
        Fault.DELAYED_WRITE,
        Fault.CRASH,
        Fault.PAUSE,
    }
    assert {fault for fault, times in fired.items() if times >= 5} >= struck


def test_a_counter_without_nonces_is_caught():
    """Equal bytes: a client takes another client's write for its own when it reads it back."""

    def search(seeds):
        for seed in seeds:
            simulation = run_counter(seed, careful=False)
            try:
                check_counter(simulation)
            finally:
                simulation.dispose()

    with pytest.raises(AssertionError):
        search(range(300))


def test_the_same_seed_gives_the_same_trace():
    one, two, other = run_counter(7), run_counter(7), run_counter(8)
    assert one.trace_hash() == two.trace_hash() != other.trace_hash()


def test_a_trace_is_the_same_in_a_process_with_another_hash_seed():
    program = (
        "from tests.support.simulated.counter import run_counter\n"
        "print(run_counter(7).trace_hash())"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=REPOSITORY,
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")[: how_many(1, whole=2)]
    }
    assert hashes == {run_counter(7).trace_hash()}


def run_alone(program, strikes=None, **arguments):
    faults = ScriptedFaults({("user", number): s for number, s in (strikes or {}).items()})
    simulation = Simulation(faults=faults, **arguments)
    client = simulation.add("user", program)
    simulation.run()
    return simulation, client


def create(client):
    return (yield from put("key", client.ids.nonce().encode(), ABSENT))


@pytest.mark.parametrize("fault", [Fault.APPLIED_503, Fault.APPLIED_CUT])
def test_a_write_whose_response_was_lost_is_stored_once(fault):
    simulation, client = run_alone(create, {1: Strike(fault)})
    assert isinstance(client.result, Stored)
    assert simulation.fired[fault] == 1
    assert len(simulation.store.journal) == 1


@pytest.mark.parametrize(
    "fault", [Fault.REFUSED_503, Fault.THROTTLED_429, Fault.CONFLICT_409, Fault.DELAYED_WRITE]
)
def test_a_write_that_was_not_executed_is_sent_again(fault):
    simulation, client = run_alone(create, {1: Strike(fault)})
    assert isinstance(client.result, Stored)
    assert len(simulation.store.journal) == 1
    simulation.land_delayed_writes()
    assert len(simulation.store.journal) == 1


def test_a_delayed_write_is_stored_after_its_client_has_crashed():
    simulation, client = run_alone(create, {1: Strike(Fault.CRASH, "later")})
    assert client.status == "crashed"
    assert not simulation.store.objects
    simulation.land_delayed_writes()
    assert set(simulation.store.objects) == {"key"}
    assert simulation.fired[Fault.DELAYED_WRITE] == 1


@pytest.mark.parametrize(("landing", "keys"), [("never", set()), ("now", {"key"})])
def test_a_client_can_crash_before_or_after_its_request(landing, keys):
    simulation, client = run_alone(create, {1: Strike(Fault.CRASH, landing)})
    assert client.status == "crashed"
    assert set(simulation.store.objects) == keys
    simulation.dispose()


def test_a_crashed_client_runs_no_handler_and_its_restart_takes_over():
    ran = []

    def program(client):
        try:
            yield from create(client)
        finally:
            ran.append(client.name)

    def restart(client):
        found = yield from get("key")
        return type(found)

    simulation = Simulation(faults=ScriptedFaults({("user", 1): Strike(Fault.CRASH, "now")}))
    simulation.add("user", program, restart=restart)
    simulation.run()
    assert ran == []
    assert [client.result for client in simulation.clients] == [None, Found]
    simulation.dispose()
    assert ran == ["user"]


def test_a_paused_client_continues_after_its_pause():
    def program(client):
        before = client.clock.elapsed()
        yield from get("key")
        return client.clock.elapsed() - before

    simulation, client = run_alone(program, {1: Strike(Fault.PAUSE)})
    assert client.result > 100
    assert simulation.fired[Fault.PAUSE] == 1


def test_a_clock_skew_fires_once_the_clock_is_read():
    def program(client):
        before = client.clock.now()
        yield from get("key")
        fired = client.simulation.fired[Fault.CLOCK_SKEW]
        return client.clock.now() - before, fired

    simulation, client = run_alone(program, {1: Strike(Fault.CLOCK_SKEW)})
    assert client.result[0] < -3000
    assert client.result[1] == 0
    assert simulation.fired[Fault.CLOCK_SKEW] == 1


def test_a_stale_list_lacks_new_objects_and_has_deleted_ones():
    from lakevilla.store.effects import delete, list_objects

    def program(client):
        yield from put("d/old", b"1", ANY)
        yield from sleep(60)
        yield from delete("d/old")
        yield from put("d/new", b"2", ANY)
        return [info.key for info in (yield from list_objects("d"))]

    simulation, client = run_alone(program, {4: Strike(Fault.STALE_LIST)})
    assert client.result == ["d/old"]
    assert simulation.fired[Fault.STALE_LIST] == 1
    assert run_alone(program)[1].result == ["d/new"]


def test_parts_of_a_parallel_interleave_and_keep_the_order_of_results():
    def part(key):
        yield from put(key, key.encode(), ANY)
        found = yield from get(key)
        return found.body

    def program(client):
        return (yield Parallel((part("a"), part("b"), Get("c"), Parallel((Get("d"),)))))

    orders = set()
    for seed in range(20):
        simulation = Simulation(seed)
        client = simulation.add("user", program)
        simulation.run()
        assert client.result == [b"a", b"b", Missing(), [Missing()]]
        orders.add(tuple(line.key for line in simulation.trace))
    assert len(orders) > 10


def test_the_first_error_of_a_parallel_is_raised_after_all_parts_have_ended():
    def fails():
        yield from get("a")
        raise StoreError("no")

    def program(client):
        try:
            yield from parallel([fails(), Put("b", b"1", ANY), DeleteObject("c")])
        except StoreError:
            return set(client.simulation.store.objects)

    for seed in range(10):
        simulation = Simulation(seed)
        client = simulation.add("user", program)
        simulation.run()
        assert client.result == {"b"}


def test_an_error_that_a_program_does_not_catch_fails_the_simulation():
    def program(client):
        yield from get("a")
        raise StoreError("no")

    simulation = Simulation(3)
    simulation.add("user", program)
    with pytest.raises(ClientFailed, match="seed 3: user raised StoreError"):
        simulation.run()


def test_an_endless_program_is_stopped():
    def program(client):
        while True:
            yield from get("a")

    simulation = Simulation(max_steps=100)
    simulation.add("user", program)
    with pytest.raises(Stuck, match="the last requests"):
        simulation.run()


def test_sleeping_clients_wake_in_virtual_time():
    def program(client):
        yield from sleep(86400)
        yield from put("key", b"", ANY)

    simulation, _ = run_alone(program)
    assert simulation.now > 86400
    assert len(simulation.trace) == 1


def test_a_wait_at_a_gate_ends_in_virtual_time_or_when_the_gate_opens():
    gate, told = Gate(), []

    def waits(client):
        yield from wait_at(gate, 10.0)
        told.append((gate.is_open, client.simulation.now))
        yield from wait_at(gate, 1000.0)
        told.append((gate.is_open, client.simulation.now))

    def opens(client):
        yield from sleep(50.0)
        gate.open()

    simulation = Simulation(1)
    simulation.add("waits", waits)
    simulation.add("opens", opens)
    simulation.run()
    assert told == [(False, pytest.approx(10.0)), (True, pytest.approx(50.0))]


def test_tokens_by_content_repeat_with_the_content():
    def program(client):
        tokens = []
        for body in (b"one", b"two", b"one"):
            tokens.append((yield from put("key", body, ANY)).token)
        return tokens

    _, client = run_alone(program, content_tags=True)
    assert client.result[0] == client.result[2] != client.result[1]
    _, client = run_alone(program)
    assert len(set(client.result)) == 3


def test_a_trace_prints_one_line_per_request():
    simulation, _ = run_alone(lambda client: increment(client, 1))
    assert len(simulation.trace) == 2
    assert "get" in str(simulation.trace[0])
    assert "missing" in str(simulation.trace[0])
    assert "put absent" in str(simulation.trace[1])
    assert value_of(simulation) == 1

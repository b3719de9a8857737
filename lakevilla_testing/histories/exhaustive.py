"""Every crash point and, up to a bound, every interleaving of a small scenario.

A scenario is a function that builds a simulation for the given faults and schedule, and another
that checks the result. Each run starts from the beginning and is replayed from its script
(stateless search), so no state must be undone. What is on the store before the clients begin is
made once a search, by functions that are `set_up_once`; it was a fifth of the time of a search.
"""

from __future__ import annotations

import heapq
import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import count
from typing import ParamSpec, TypeVar

from lakevilla_testing.world.faults import Fault, Faults, NoFaults, ScriptedFaults, Strike
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.schedules import Schedule, ScriptedSchedule

#: Makes a simulation with its clients added, not yet run.
Build = Callable[[Faults, Schedule], Simulation]
#: Raises ``AssertionError`` when the outcome is wrong.
Check = Callable[[Simulation], None]

#: The ways in which a client dies in a request: the request was never sent; it took effect; it
#: takes effect while the next process is at work, or long after that has ended.
_DEATHS = (
    (Strike(Fault.CRASH, "never"), 0.0),
    (Strike(Fault.CRASH, "now"), 0.0),
    (Strike(Fault.CRASH, "later"), 1.1),
    (Strike(Fault.CRASH, "later"), 500.0),
)


#: What the present search has set up, by function and arguments; None outside a search.
_set_up: dict[tuple[object, str], Simulation] | None = None

P = ParamSpec("P")
T = TypeVar("T")


def one_search(search: Callable[P, T]) -> Callable[P, T]:
    """Let a search, and searches within it, set up the start of their simulations only once.

    During a search the library stays unchanged: a bug is planted before it, and removed after it.
    """

    @wraps(search)
    def searched(*args: P.args, **kwargs: P.kwargs) -> T:
        global _set_up
        before = _set_up
        _set_up = {} if before is None else before
        try:
            return search(*args, **kwargs)
        finally:
            _set_up = before

    return searched


def set_up_once(make: Callable[P, Simulation]) -> Callable[P, Simulation]:
    """Make a simulation for each run, on a copy of the store that the first run has set up.

    ``make`` takes ``faults`` and ``schedule``, and its work depends on neither: it runs programs
    alone, to their ends. It adds no clients.
    """
    signature = inspect.signature(make)

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Simulation:
        if _set_up is None:
            return make(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        ours = {name: given.arguments.get(name) for name in ("faults", "schedule")}
        given.arguments |= dict.fromkeys(ours)
        key = make, repr(given.arguments)
        if key not in _set_up:
            _set_up[key] = make(*given.args, **given.kwargs)
        return _set_up[key].continued(**ours)

    return made


@one_search
def crash_everywhere(
    build: Build, check: Check, client: str, *, every: int = 1, first: int = 0
) -> int:
    """Crash a client at each of its requests, in each way; return the number of runs.

    The program of the process that replaces the client, or another client, recovers. With ``every``
    only each crash of that stride is run, from ``first`` on.
    """
    if every == 1:
        return sum(1 for _ in _crashes(build, check, client))
    chosen = list(_crash_points(build, check, client))[first % every :: every]
    for number, strike, delay in chosen:
        _run(build, check, ScriptedFaults({(client, number): strike}, delay))
    return len(chosen)


@one_search
def crash_twice_everywhere(
    build: Build, check: Check, client: str, *, every: int = 1, first: int = 0
) -> int:
    """Run all pairs: the client at each request, and the process in its place at each of its own.

    With ``every`` only each first crash of that stride is paired, from ``first`` on.
    """
    runs = 0
    for place, (number, strike, delay) in enumerate(_crash_points(build, check, client)):
        if place % every != first % every:
            continue
        for second in count(1):
            fired = 0
            for other, other_delay in _DEATHS:
                strikes = {(client, number): strike, (client + "'", second): other}
                faults = ScriptedFaults(strikes, max(delay, other_delay))
                fired = _run(build, check, faults).fired[Fault.CRASH]
                if fired < 2:
                    break
                runs += 1
            if fired < 2:
                break
    return runs


@one_search
def crash_both_everywhere(
    build: Build, check: Check, clients: tuple[str, str], *, every: int = 1, first: int = 0
) -> int:
    """Run all pairs of the first client's crashes and the second one's, as far as both happen.

    With ``every`` only each pair of that stride is run, from ``first`` on.
    """
    one, other = clients
    places = [list(_crash_points(build, check, client)) for client in clients]
    pairs = [(before, after) for before in places[0] for after in places[1]]
    runs = 0
    for (number, strike, delay), (second, blow, later) in pairs[first % every :: every]:
        strikes = {(one, number): strike, (other, second): blow}
        _run(build, check, ScriptedFaults(strikes, max(delay, later)))
        runs += 1
    return runs


@one_search
def interleavings_with_a_crash(
    build: Build, check: Check, client: str, *, limit: int, preemptions: int = 2, every: int = 1
) -> int:
    """Run up to ``limit`` interleavings for each way in which a client may crash."""
    runs = 0
    for number, strike, delay in list(_crash_points(build, check, client))[::every]:
        faults = ScriptedFaults({(client, number): strike}, delay)
        runs += interleavings(build, check, limit=limit, preemptions=preemptions, faults=faults)
    return runs


@one_search
def interleavings(
    build: Build,
    check: Check,
    *,
    limit: int = 20_000,
    preemptions: int = 4,
    faults: Faults | None = None,
    every: int = 1,
) -> int:
    """Run schedules in order of their number of preemptions; return the number of runs.

    A preemption takes a client's turn away. Few preemptions show almost every bug (Musuvathi and
    Qadeer, PLDI 2007), so a ``limit`` leaves out the schedules that matter least. A turn that a
    client gives up itself, by sleeping or ending, costs nothing. With ``every`` only each schedule
    of that stride is run.
    """
    agenda: list[tuple[int, int, list[int]]] = [(0, 0, [])]
    numbers = count(1)
    runs = 0
    for place in count():
        if not agenda or runs == limit:
            break
        cost, _, script = heapq.heappop(agenda)
        if place % every:
            continue
        schedule = ScriptedSchedule(script)
        _run(build, check, faults or NoFaults(), schedule)
        runs += 1
        # Alternatives before the script's end are on the agenda already.
        for step in range(len(script), len(schedule.taken)):
            price = cost + (1 if schedule.costs[step] else 0)
            if price > preemptions:
                continue
            for pick in range(len(schedule.options[step])):
                if pick != schedule.taken[step]:
                    heapq.heappush(agenda, (price, next(numbers), [*schedule.taken[:step], pick]))
    return runs


def _crash_points(build: Build, check: Check, client: str) -> Iterator[tuple[int, Strike, float]]:
    """Yield each crash of a client without running it: for each request of an undisturbed run."""
    simulation = _run(build, check, NoFaults())
    requests = next(other.requests for other in simulation.clients if other.name == client)
    for number in range(1, requests + 1):
        for strike, delay in _DEATHS:
            yield number, strike, delay


def _crashes(build: Build, check: Check, client: str) -> Iterator[tuple[int, Strike, float]]:
    """Run and yield each crash of a client."""
    for number in count(1):
        for strike, delay in _DEATHS:
            faults = ScriptedFaults({(client, number): strike}, delay)
            if not _run(build, check, faults).fired[Fault.CRASH]:
                return
            yield number, strike, delay


def _run(
    build: Build, check: Check, faults: Faults, schedule: ScriptedSchedule | None = None
) -> Simulation:
    schedule = schedule or ScriptedSchedule()
    simulation = build(faults, schedule)
    try:
        simulation.run()
        simulation.land_delayed_writes()
        check(simulation)
    except AssertionError as error:
        error.add_note(f"schedule {schedule.taken}; the requests:")
        error.add_note("\n".join(map(str, simulation.trace)))
        raise
    finally:
        simulation.dispose()
    return simulation

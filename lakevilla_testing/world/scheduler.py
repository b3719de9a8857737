"""The simulator: clients, virtual time, one store, and a seed that decides everything.

A client is a program. Its effects pass through the library's own retry and read-back code, which
yields single attempts; performing one attempt is the unit of interleaving, for the parts of a
``Parallel`` too. There are no threads and there is no I/O, so the same seed gives the same trace,
byte for byte.

An attempt takes effect and is answered in one step. Nothing is lost by that: between the two a
client does nothing, so an answer that arrives late is the same as an early answer and a late next
request. Writes that take effect after their client has given them up are a fault of their own.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

from lakevilla.lake.context import is_relied_on
from lakevilla.settings import Settings
from lakevilla.store.base import Failure
from lakevilla.store.check_mode import expand_checked
from lakevilla.store.effects import (
    Await,
    CopyObject,
    DeleteObject,
    Effect,
    List,
    Parallel,
    Program,
    Put,
    Sleep,
)
from lakevilla.store.readback import Attempts, expand
from lakevilla_testing.world.client import EPOCH, Client
from lakevilla_testing.world.faults import Fault, Faults, NoFaults, Strike
from lakevilla_testing.world.programs import as_program
from lakevilla_testing.world.schedules import RandomSchedule, Schedule
from lakevilla_testing.world.store import Answer, SimulatedStore
from lakevilla_testing.world.trace import Line, key_of, outcome_of, verb_of


class ClientFailed(AssertionError):
    """A client's program raised an error that it should have handled."""


class Stuck(AssertionError):
    """The clients still run after more steps than any history needs."""


class Strand:
    """A strand, one line of execution: a program, or a part of a ``Parallel``."""

    __slots__ = ("attempts", "client", "failure", "left", "parent", "place", "program", "results")

    def __init__(
        self, client: Client, program: Program[Any], parent: Strand | None, place: int
    ) -> None:
        self.client = client
        self.program = program
        #: The retry code that runs the program's present effect.
        self.attempts: Generator[Effect, Any, Any] | None = None
        self.parent = parent
        self.place = place
        self.left = 0
        self.results: list[Any] = []
        self.failure: Exception | None = None


class Simulation:
    """A set of clients over one store, run to the end by one schedule.

    Parameters
    ----------
    seed : int
        Decides ids, clocks' rates and, where they are not given, the schedule.
    schedule : Schedule, optional
        Decides which client moves next.
    faults : Faults, optional
        The faults; nothing by default.
    settings : Settings, optional
        Passed to the retry code; clients should use the same.
    content_tags : bool
        The store's ETags are hashes of the content.
    clock_rates : bool
        Clients' clocks run up to a tenth too fast or too slow.
    checked : bool
        The store knows no conditions, and the clients check instead.
    seconds_between_writes : float
        The store takes one write of an object in so many seconds.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        schedule: Schedule | None = None,
        faults: Faults | None = None,
        settings: Settings | None = None,
        content_tags: bool = False,
        clock_rates: bool = False,
        checked: bool = False,
        seconds_between_writes: float = 0.0,
        max_steps: int = 50_000,
    ) -> None:
        self.seed = seed
        self.now = 0.0
        self.store = SimulatedStore(
            lambda: EPOCH + self.now,
            content_tags=content_tags,
            conditional=not checked,
            seconds_between_writes=seconds_between_writes,
        )
        self.checked = checked
        self.schedule = schedule or RandomSchedule(random.Random(f"{seed}/schedule"))
        self.faults: Faults = faults or NoFaults()
        self.settings = settings or Settings()
        self.fired: Counter[Fault] = Counter()
        self.trace: list[Line] = []
        self.clients: list[Client] = []
        self.max_steps = max_steps
        self._rates = random.Random(f"{seed}/rates") if clock_rates else None
        self._ready: list[tuple[Strand, Effect]] = []
        self._timers: list[tuple[float, int, Strand | Callable[[], None]]] = []
        self._number = 0
        self._starting = 0
        self._graveyard: list[Strand] = []
        self._parked: dict[Strand, Await] = {}

    # ---------------------------------------------------------------- public

    def add(
        self,
        name: str,
        program: Callable[[Client], Program[Any]],
        *,
        restart: Callable[[Client], Program[Any]] | None = None,
        faulty: bool = True,
    ) -> Client:
        """Start a client.

        Parameters
        ----------
        name : str
            Shown in the trace; unique.
        program : callable
            Makes the client's program.
        restart : callable, optional
            Makes the program of the process that replaces a crashed one;
            its name is the client's with one more ``'``.
        faulty : bool
            True if faults may strike its requests.
        """
        assert all(other.name != name for other in self.clients), f"two clients named {name}"
        rate = 1.0 if self._rates is None else self._rates.uniform(0.9, 1.1)
        client = Client(self, name, f"{self.seed}/{name}", rate)
        client.restart = restart
        client.faulty = faulty
        self.clients.append(client)
        self.spawn(client, program(client))
        return client

    def continued(
        self, *, schedule: Schedule | None = None, faults: Faults | None = None
    ) -> Simulation:
        """Return a simulation without clients that continues from this one's store and time."""
        assert not self.clients, "what a client has begun can't be copied"
        other = Simulation(
            self.seed,
            schedule=schedule,
            faults=faults,
            settings=self.settings,
            clock_rates=self._rates is not None,
            checked=self.checked,
            max_steps=self.max_steps,
        )
        other.now = self.now
        other.store = self.store.copy()
        other.store.now = lambda: EPOCH + other.now
        return other

    def spawn(self, client: Client, program: Program[Any]) -> None:
        """Start another strand of a client, like a thread of its process."""
        client.mains += 1
        self._advance(Strand(client, program, None, 0), None, None)

    def run(self) -> None:
        """Run until every client has ended. Delayed writes stay under way.

        Raises
        ------
        ClientFailed
            A program raised.
        Stuck
            There is no end in sight.
        """
        for _ in range(self.max_steps):
            if not self._step():
                self._check_gates()
                return
        raise Stuck(
            f"seed {self.seed}: still running after {self.max_steps} steps: "
            f"{[c for c in self.clients if c.status == 'running']}; the last requests:\n"
            + "\n".join(map(str, self.trace[-30:]))
        )

    def requests_of(self, client: Client) -> list[Effect]:
        """Return what a client would request next, where others do nothing until it does."""
        while client.status == "running":
            self._wake()
            ready = [attempt for strand, attempt in self._ready if strand.client is client]
            if ready or not self._timers:
                return ready
            self.now = max(self.now, self._timers[0][0])
        return []

    def move(self) -> Line:
        """Perform one request, of a client that the schedule picks, and return it."""
        before = len(self.trace)
        while len(self.trace) == before:
            assert self._step(), "no client has a request"
        return self.trace[before]

    def land_delayed_writes(self) -> None:
        """Let every write take effect that is still under way."""
        timers = sorted(self._timers, key=lambda timer: timer[:2])
        self._timers = [timer for timer in timers if isinstance(timer[2], Strand)]
        heapq.heapify(self._timers)
        for due, _, landing in timers:
            if not isinstance(landing, Strand):
                self.now = max(self.now, due)
                landing()

    def dispose(self) -> None:
        """Close the programs of crashed clients.

        A crashed process runs no more code, so this is called after the checks.
        """
        left = [strand for strand, _ in self._ready] + list(self._parked)
        left += [what for _, _, what in self._timers if isinstance(what, Strand)]
        for leaf in [*self._graveyard, *left]:
            strand: Strand | None = leaf
            while strand is not None:
                for generator in (strand.attempts, strand.program):
                    if generator is not None:
                        _close(generator)
                strand = strand.parent
        self._graveyard.clear()
        self._parked.clear()
        self._ready.clear()
        self._timers.clear()

    def trace_hash(self) -> str:
        """Return a digest of the trace: times, clients, requests, contents and outcomes."""
        digest = hashlib.blake2b(digest_size=16)
        for line in self.trace:
            digest.update(repr(tuple(line)).encode())
        return digest.hexdigest()

    # ------------------------------------------------------------- one step

    def _step(self) -> bool:
        self._wake()
        eligible = [
            (strand, attempt)
            for strand, attempt in self._ready
            if strand.client.paused_until <= self.now
        ]
        if not eligible:
            return self._jump()
        index = self.schedule.pick([strand.client.name for strand, _ in eligible])
        strand, attempt = eligible[index]
        self.now += self.schedule.latency_seconds()
        client = strand.client
        client.requests += 1
        strike = None
        if client.faulty:
            strike = self.faults.strike(client.name, client.requests, attempt)
        if strike is not None and strike.fault is Fault.PAUSE:
            # The client pauses before the request is sent; afterwards it is sent, without a second
            # pause.
            if client.paused_at == client.requests:
                strike = None
            else:
                return self._pause(client)
        self._ready.remove((strand, attempt))
        if strike is not None and strike.fault is Fault.CRASH:
            self._crash(strand, attempt, strike)
            return True
        outcome = self._perform(client, attempt, strike)
        self._advance(strand, outcome, None)
        return True

    def _pause(self, client: Client) -> bool:
        client.paused_at = client.requests
        client.paused_until = self.now + self.faults.pause_seconds()
        client.requests -= 1
        self.fired[Fault.PAUSE] += 1
        self._log(client.name, "pause", "", f"until {client.paused_until:.3f}")
        return True

    def _jump(self) -> bool:
        """Advance time until a client can move, when none can move now."""
        running = [client for client in self.clients if client.status == "running"]
        instants = [client.paused_until for client in running if client.paused_until > self.now]
        if self._timers and (running or self._starting):
            instants.append(self._timers[0][0])
        if not instants:
            return False
        self.now = max(self.now, min(instants))
        return True

    def _wake(self) -> None:
        while self._timers and self._timers[0][0] <= self.now:
            _, _, what = heapq.heappop(self._timers)
            if not isinstance(what, Strand):
                what()
            elif what.client.status == "crashed":
                self._graveyard.append(what)
            elif what.client.paused_until > self.now:
                self._at(what.client.paused_until, what)
            else:
                self._advance(what, None, None)

    def _at(self, seconds: float, what: Strand | Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._timers, (seconds, self._number, what))

    # ------------------------------------------------- a request and a fault

    def _perform(self, client: Client, attempt: Effect, strike: Strike | None) -> Answer:
        if client.offline_until > self.now:
            self.fired[Fault.NETWORK_LOST] += 1
            self._log(client.name, verb_of(attempt), key_of(attempt), "no network")
            return Failure("no network")
        fault = None if strike is None else strike.fault
        match fault:
            case Fault.APPLIED_503 | Fault.APPLIED_CUT:
                changes = len(self.store.journal)
                self.store.apply(attempt)
                if len(self.store.journal) > changes:
                    self.fired[fault] += 1
                answer: Answer = (
                    Failure("503 after the write", throttled=True)
                    if fault is Fault.APPLIED_503
                    else Failure("connection cut")
                )
            case Fault.REFUSED_503:
                self.fired[fault] += 1
                answer = Failure("503", throttled=True)
            case Fault.THROTTLED_429:
                self.fired[fault] += 1
                answer = Failure("429", ambiguous=False, throttled=True)
            case Fault.CONFLICT_409:
                self.fired[fault] += 1
                answer = Failure("409", ambiguous=False, conflict=True)
            case Fault.DELAYED_WRITE:
                self._land_later(client, attempt)
                answer = Failure("timed out")
            case Fault.STALE_LIST:
                answer = self._stale(attempt)
            case Fault.NETWORK_LOST:
                self.fired[fault] += 1
                if strike is not None and strike.landing == "now":
                    self.store.apply(attempt)
                client.offline_until = self.now + self.faults.outage_seconds()
                answer = Failure("the network is gone")
            case Fault.CLOCK_SKEW:
                client.clock.skew(self.faults.offset_seconds())
                answer = self.store.apply(attempt)
            case _:
                answer = self.store.apply(attempt)
        self._log(
            client.name, verb_of(attempt), key_of(attempt), outcome_of(attempt, answer, fault)
        )
        return answer

    def _stale(self, attempt: Effect) -> Answer:
        assert isinstance(attempt, List)
        truth = self.store.apply(attempt)
        then = self.store.now() - self.faults.stale_seconds()
        answer = self.store.list_at(then, attempt.prefix, attempt.start_after, attempt.until)
        if answer != truth:
            self.fired[Fault.STALE_LIST] += 1
        return answer

    def _land_later(self, client: Client, attempt: Effect) -> None:
        def land() -> None:
            changes = len(self.store.journal)
            answer = self.store.apply(attempt)
            if len(self.store.journal) > changes:
                self.fired[Fault.DELAYED_WRITE] += 1
            outcome = outcome_of(attempt, answer, None)
            self._log(client.name, "landed", key_of(attempt), outcome)

        self._at(self.now + self.faults.delay_seconds(), land)

    def _crash(self, strand: Strand, attempt: Effect, strike: Strike) -> None:
        client = strand.client
        client.status = "crashed"
        self.fired[Fault.CRASH] += 1
        if strike.landing == "now":
            self.store.apply(attempt)
        elif strike.landing == "later" and isinstance(attempt, Put | CopyObject | DeleteObject):
            self._land_later(client, attempt)
        self._log(client.name, "crash", f"{verb_of(attempt)} {key_of(attempt)}", strike.landing)
        # The generators are kept, not closed: a dead process runs no handler.
        self._graveyard.append(strand)
        self._graveyard += [other for other, _ in self._ready if other.client is client]
        self._ready = [pair for pair in self._ready if pair[0].client is not client]
        self._graveyard += [other for other in self._parked if other.client is client]
        self._parked = {
            other: wait for other, wait in self._parked.items() if other.client is not client
        }
        if client.restart is not None:
            restart, name, faulty = client.restart, client.name + "'", client.faulty

            def start() -> None:
                self._starting -= 1
                self.add(name, restart, restart=restart, faulty=faulty)

            self._starting += 1
            self._at(self.now + self.faults.restart_seconds(), start)

    def _log(self, client: str, verb: str, key: str, outcome: str) -> None:
        self.trace.append(Line(round(self.now, 6), client, verb, key, outcome))

    # ------------------------------------------------------------- programs

    def _advance(self, strand: Strand, value: Any, error: Exception | None) -> None:
        """Run a strand's code up to its next request, sleep, fork or end."""
        while True:
            generator = strand.attempts or strand.program
            try:
                effect = generator.send(value) if error is None else generator.throw(error)
            except StopIteration as stop:
                value, error = stop.value, None
                ended = strand.attempts is None
            except Exception as raised:
                value, error = None, raised
                ended = strand.attempts is None
            else:
                value = error = None
                if isinstance(effect, Sleep):
                    self._at(self.now + max(0.001, effect.seconds), strand)
                    return
                if isinstance(effect, Await):
                    self._park(strand, effect)
                    return
                if isinstance(effect, Parallel):
                    self._fork(strand, effect)
                    return
                if strand.attempts is not None:
                    self._submit(strand, effect)
                    return
                strand.attempts = self._expand(effect, strand.client)
                continue
            strand.attempts = None
            if ended:
                self._end(strand, value, error)
                return

    def _submit(self, strand: Strand, attempt: Effect) -> None:
        """Have one request performed as soon as the schedule picks it."""
        self._ready.append((strand, attempt))

    def _expand(self, effect: Effect, client: Client) -> Attempts:
        assert not isinstance(effect, Sleep | Await | Parallel), "none is a request"
        if self.checked:
            return expand_checked(effect, client.ids, self.settings, is_relied_on)
        return expand(effect, client.ids, self.settings)

    def _park(self, strand: Strand, wait: Await) -> None:
        """Let a strand wait for another strand of its process, or until its time is over."""
        self._parked[strand] = wait

        def wake() -> None:
            if self._parked.get(strand) is wait:
                del self._parked[strand]
                self._at(self.now, strand)

        wait.gate.when_open(wake)
        if wait.seconds is not None:
            self._at(self.now + max(0.001, wait.seconds), wake)

    def _check_gates(self) -> None:
        waiting = sorted({strand.client.name for strand in self._parked})
        if waiting:
            raise Stuck(f"seed {self.seed}: nobody opens the gates at which {waiting} wait")

    def _fork(self, strand: Strand, effect: Parallel) -> None:
        strand.left = len(effect.parts)
        strand.results = [None] * strand.left
        strand.failure = None
        if strand.left == 0:
            self._advance(strand, [], None)
            return
        for place, part in enumerate(effect.parts):
            child = Strand(strand.client, as_program(part), strand, place)
            self._advance(child, None, None)

    def _end(self, strand: Strand, value: Any, error: Exception | None) -> None:
        client, parent = strand.client, strand.parent
        if parent is not None:
            parent.results[strand.place] = value
            parent.failure = parent.failure or error
            parent.left -= 1
            if parent.left == 0:
                if parent.failure is None:
                    self._advance(parent, parent.results, None)
                else:
                    self._advance(parent, None, parent.failure)
            return
        if error is not None:
            raise ClientFailed(
                f"seed {self.seed}: {client.name} raised {type(error).__name__}: {error}"
            ) from error
        client.result = value
        client.mains -= 1
        if client.mains == 0:
            client.status = "done"


def _close(generator: Generator[Any, Any, Any]) -> None:
    for _ in range(100):
        try:
            generator.close()
        except RuntimeError:
            continue  # the program yielded in a handler; its next handler is next
        except Exception:
            return
        return

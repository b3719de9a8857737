"""Conditional writes replaced by reads that check them: attempt by attempt, and in the
simulator.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from lakevilla.clock import SystemClock
from lakevilla.errors import StoreError
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.base import (
    ABSENT,
    ANY,
    Failure,
    Found,
    Match,
    Missing,
    PutOutcome,
    Refused,
    Stored,
    Token,
    Unchanged,
    Unknown,
)
from lakevilla.store.check_mode import expand_checked
from lakevilla.store.effects import Get, Program, Put, Sleep, put
from lakevilla.store.readback import Request
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.scheduler import Simulation

OURS, THEIRS = b"ours, with a nonce", b"theirs, with another"
OLD, NEW, OTHER = Token('"old"'), Token('"new"'), Token('"other"')
CREATE = Put("log/1", OURS, ABSENT)
REPLACE = Put("HEAD.json", OURS, Match(OLD))

BUSY = Failure("429", ambiguous=False, throttled=True)
TOO_SOON = Failure("429", ambiguous=False, throttled=True, of_object=True)
TIME_OUT = Failure("timed out")
FORBIDDEN = Failure("403", ambiguous=False, permanent=True)

FOUND_OURS = Found(OURS, NEW, len(OURS))
FOUND_THEIRS = Found(THEIRS, OTHER, len(THEIRS))
FOUND_OLD = Found(b"as it was", OLD, 9)
#: For each condition: what the first read must find, and what it must not find.
BOTH = [(CREATE, Missing(), FOUND_THEIRS), (REPLACE, FOUND_OLD, FOUND_THEIRS)]


class Driver:
    """A stub that answers attempts from a script and records them; pauses take no time."""

    def __init__(
        self, effect: Request, answers: Iterable[Any], relied_on: bool = False, **settings: Any
    ) -> None:
        self.asked: list[Request] = []
        self.pauses: list[float] = []
        self.left = list(answers)
        attempts = expand_checked(
            effect,
            Ids(SystemClock(), random.Random(1)),
            Settings(**settings),
            lambda key: relied_on,
        )
        answer: Any = None
        try:
            while True:
                attempt = attempts.send(answer)
                if isinstance(attempt, Sleep):
                    self.pauses.append(attempt.seconds)
                    answer = None
                else:
                    self.asked.append(attempt)
                    answer = self.left.pop(0)
        except StopIteration as end:
            self.outcome = end.value
        assert self.left == [], "attempts that were not made"
        assert all(put.condition == ANY for put in self.asked if isinstance(put, Put))

    @property
    def verbs(self) -> str:
        return " ".join(type(request).__name__.lower() for request in self.asked)


@pytest.mark.parametrize(("effect", "wanted", "_"), BOTH)
def test_a_write_counts_as_stored_only_after_all_its_checks_have_found_it(
    effect: Put, wanted: Any, _: Any
) -> None:
    answers = [wanted, Stored(NEW), FOUND_OURS, Unchanged(), FOUND_OURS]
    driver = Driver(effect, answers, check_reads=3, check_interval_seconds=0.5)
    assert driver.outcome == Stored(NEW)
    assert driver.verbs == "get put get get get"
    assert driver.pauses == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(("effect", "wanted", "other"), BOTH)
def test_a_write_whose_condition_does_not_hold_is_refused_and_not_sent(
    effect: Put, wanted: Any, other: Any
) -> None:
    driver = Driver(effect, [other])
    assert driver.outcome == Refused(other)
    assert driver.verbs == "get"


def test_a_conditional_replacement_of_an_absent_key_is_refused() -> None:
    assert Driver(REPLACE, [Missing()]).outcome == Refused()


def test_a_refused_write_is_reported_only_after_the_object_found_has_settled() -> None:
    driver = Driver(CREATE, [FOUND_THEIRS, Unchanged(), Unchanged(), Unchanged()], relied_on=True)
    assert driver.outcome == Refused(FOUND_THEIRS)
    gone = Driver(CREATE, [FOUND_THEIRS, Missing()], relied_on=True)
    assert gone.outcome == Refused()


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_a_create_that_another_client_overwrites_is_refused(looks: int) -> None:
    answers = [Missing(), Stored(NEW), *[FOUND_OURS] * looks, FOUND_THEIRS]
    assert Driver(CREATE, answers).outcome == Refused(FOUND_THEIRS)


@pytest.mark.parametrize("looks", [0, 1, 2])
@pytest.mark.parametrize("left", [FOUND_THEIRS, Missing()])
def test_a_replacement_that_is_overwritten_or_deleted_has_an_unknown_outcome(
    looks: int, left: Any
) -> None:
    """Another client may have read it, and replaced it by an object that is based on it."""
    answers = [FOUND_OLD, Stored(NEW), *[FOUND_OURS] * looks, left]
    assert isinstance(Driver(REPLACE, answers).outcome, Unknown)


def test_a_create_whose_object_is_deleted_has_an_unknown_outcome() -> None:
    assert isinstance(Driver(CREATE, [Missing(), Stored(NEW), Missing()]).outcome, Unknown)


@pytest.mark.parametrize(("effect", "wanted", "other"), BOTH)
def test_a_write_that_came_too_soon_is_refused_at_once_if_the_object_has_changed(
    effect: Put, wanted: Any, other: Any
) -> None:
    driver = Driver(effect, [wanted, TOO_SOON, other])
    assert driver.outcome == Refused(other, limited=True)
    assert (driver.verbs, driver.pauses) == ("get put get", [])


@pytest.mark.parametrize(("effect", "wanted", "_"), BOTH)
def test_a_write_that_came_too_soon_waits_and_looks_again_before_it_is_sent_again(
    effect: Put, wanted: Any, _: Any
) -> None:
    """Otherwise it would be stored later than W after its client's last look."""
    answers = [wanted, TOO_SOON, wanted, wanted, Stored(NEW), FOUND_OURS]
    driver = Driver(effect, answers, check_reads=1, check_interval_seconds=0.5)
    assert driver.outcome == Stored(NEW, limited=True)
    assert driver.verbs == "get put get get put get"
    assert 0.6 <= driver.pauses[0] <= 1.2
    assert driver.pauses[1:] == [0.5]


@pytest.mark.parametrize(("effect", "wanted", "other"), BOTH)
def test_a_write_whose_response_was_lost_is_found_by_the_checks(
    effect: Put, wanted: Any, other: Any
) -> None:
    found = Driver(effect, [wanted, TIME_OUT, FOUND_OURS, *[FOUND_OURS] * 3])
    assert found.outcome == Stored(NEW)
    assert found.verbs == "get put get get get get"
    again = Driver(effect, [wanted, TIME_OUT, wanted, Stored(NEW), *[FOUND_OURS] * 3])
    assert again.outcome == Stored(NEW)
    # Another client's object is stored, and ours may still be on its way.
    assert isinstance(Driver(effect, [wanted, TIME_OUT, other]).outcome, Unknown)


def test_a_second_call_of_the_same_write_finds_it_stored() -> None:
    driver = Driver(REPLACE, [FOUND_OURS, FOUND_OURS, FOUND_OURS, FOUND_OURS])
    assert driver.outcome == Stored(NEW)
    assert "put" not in driver.verbs


def test_a_write_that_is_always_rejected_raises_and_a_write_in_doubt_is_unknown() -> None:
    limits = {"retry_limit": 2}
    with pytest.raises(StoreError, match="log/1"):
        Driver(CREATE, [Missing(), BUSY, Missing(), BUSY], **limits)
    with pytest.raises(StoreError, match="rejected"):
        Driver(CREATE, [FORBIDDEN])
    with pytest.raises(StoreError, match="rejected"):
        Driver(CREATE, [Missing(), FORBIDDEN])
    unknown = Driver(CREATE, [Missing(), TIME_OUT, Missing(), TIME_OUT, Missing()], **limits)
    assert isinstance(unknown.outcome, Unknown)
    landed = [Missing(), TIME_OUT, Missing(), TIME_OUT, FOUND_OURS, *[FOUND_OURS] * 3]
    assert Driver(CREATE, landed, **limits).outcome == Stored(NEW)
    blind = Driver(CREATE, [Missing(), TIME_OUT, FORBIDDEN])
    assert isinstance(blind.outcome, Unknown)


def test_failed_reads_are_repeated() -> None:
    answers = [BUSY, Missing(), Stored(NEW), BUSY, FOUND_OURS, FOUND_OURS, FOUND_OURS]
    assert Driver(CREATE, answers).outcome == Stored(NEW)
    failing = Driver(CREATE, [Missing(), Stored(NEW), FORBIDDEN])
    assert isinstance(failing.outcome, Unknown)


def test_an_object_relied_on_is_read_again_until_it_has_settled() -> None:
    read = Get("HEAD.json")
    settled = Driver(read, [FOUND_OLD, Unchanged(), FOUND_OLD, Unchanged()], relied_on=True)
    assert settled.outcome == FOUND_OLD
    moved = [FOUND_OLD, Unchanged(), FOUND_THEIRS, Unchanged(), Unchanged(), Unchanged()]
    assert Driver(read, moved, relied_on=True).outcome == FOUND_THEIRS
    assert Driver(read, [FOUND_OLD, Missing()], relied_on=True).outcome == Missing()
    # An object that never settles is returned in the end.
    ever = [Found(b"%d" % n, Token(str(n)), 1) for n in range(3)]
    assert Driver(read, ever, relied_on=True, retry_limit=2).outcome == ever[-1]


def test_reading_an_unchanged_object_costs_one_request() -> None:
    assert Driver(Get("HEAD.json", OLD), [Unchanged()], relied_on=True).outcome == Unchanged()
    assert Driver(Get("HEAD.json"), [Missing()], relied_on=True).outcome == Missing()
    assert Driver(Get("a.parquet"), [FOUND_OLD]).outcome == FOUND_OLD
    assert Driver(Put("a.parquet", OURS, ANY), [Stored(NEW)]).verbs == "put"


class Prompt:
    """A schedule without long delays: one of the two oldest requests is next, within 20 ms."""

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def pick(self, ready: Sequence[str]) -> int:
        return self._random.randrange(min(2, len(ready)))

    def latency_seconds(self) -> float:
        return 0.02 * self._random.random()


def race(seed: int, **settings: Any) -> tuple[list[PutOutcome], bytes, list[bytes]]:
    """Run four writers with one condition; return their outcomes, the stored body, and their
    bodies.
    """
    simulation = Simulation(
        seed,
        schedule=Prompt(random.Random(seed)),
        settings=Settings(**settings),
        checked=True,
    )
    condition = ABSENT
    if seed % 2:
        stored = simulation.store.put("key", b"before", ANY)
        assert isinstance(stored, Stored)
        condition = Match(stored.token)  # type: ignore[assignment]
    bodies = [b"writer %d" % number for number in range(4)]

    def write(body: bytes) -> Any:
        def program(client: Client) -> Program[PutOutcome]:
            yield Sleep(0.2 * client.random.random())
            return (yield from put("key", body, condition))

        return program

    clients = [simulation.add(f"c{n}", write(body)) for n, body in enumerate(bodies)]
    simulation.run()
    return [client.result for client in clients], simulation.store.objects["key"].body, bodies


def test_exactly_one_writer_has_stored_if_all_writes_arrive_before_the_checks() -> None:
    lost = 0
    for seed in range(300):
        outcomes, left, bodies = race(seed, check_interval_seconds=0.5)
        winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Stored)]
        assert [bodies[n] for n in winners] == [left], seed
        lost += any(isinstance(outcome, Unknown) for outcome in outcomes)
        for outcome in outcomes:
            if isinstance(outcome, Refused):
                assert outcome.current is not None
    assert lost > 0, "none of them raced"


def test_two_writers_may_report_stored_if_writes_arrive_after_the_checks() -> None:
    twice = 0
    for seed in range(300):
        outcomes, _, _ = race(seed, check_reads=1, check_interval_seconds=0.001)
        twice += sum(isinstance(outcome, Stored) for outcome in outcomes) > 1
    assert twice > 0

"""Retries of writes, and reads that find out whether a write was stored: without store or clock."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
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
    ObjectInfo,
    Refused,
    Stored,
    Token,
    Unknown,
)
from lakevilla.store.effects import CopyObject, DeleteObject, Get, List, Put, PutFile, Sleep, Stat
from lakevilla.store.readback import Request, classify, describe, expand, same_object

OURS, THEIRS = b"ours, with a nonce", b"theirs, with another"
OLD, NEW = Token('"old"'), Token('"new"')
CREATE = Put("log/1", OURS, ABSENT)
REPLACE = Put("HEAD.json", OURS, Match(OLD))

BUSY = Failure("503", throttled=True)
TIME_OUT = Failure("timed out")
TURNED_AWAY = Failure("429", ambiguous=False, throttled=True)
TOO_SOON = Failure("429", ambiguous=False, throttled=True, of_object=True)
CONFLICT = Failure("409", ambiguous=False, conflict=True)
FORBIDDEN = Failure("403", ambiguous=False, permanent=True)

FOUND_OURS = Found(OURS, NEW, len(OURS))
FOUND_THEIRS = Found(THEIRS, NEW, len(THEIRS))
FOUND_OLD = Found(b"as it was", OLD, 9)


class Driver:
    """A stub that answers attempts from a script and records them; pauses take no time."""

    def __init__(self, effect: Request, answers: Iterable[Any], **settings: Any) -> None:
        self.asked: list[Request] = []
        self.pauses: list[float] = []
        self.left = list(answers)
        attempts = expand(effect, Ids(SystemClock(), random.Random(1)), Settings(**settings))
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

    @property
    def verbs(self) -> str:
        return " ".join(type(request).__name__.lower() for request in self.asked)


def outcome_of(effect: Request, *answers: Any, **settings: Any) -> Any:
    driver = Driver(effect, answers, **settings)
    assert driver.left == [], "attempts that were not made"
    return driver.outcome


@pytest.mark.parametrize("effect", [CREATE, REPLACE])
def test_an_acknowledged_write_costs_one_request(effect: Put) -> None:
    assert Driver(effect, [Stored(NEW)]).verbs == "put"
    assert outcome_of(effect, Stored(NEW)) == Stored(NEW)


@pytest.mark.parametrize("effect", [CREATE, REPLACE])
@pytest.mark.parametrize("lost", [BUSY, TIME_OUT])
def test_a_write_whose_response_was_lost_is_found_by_reading_back(
    effect: Put, lost: Failure
) -> None:
    driver = Driver(effect, [lost, FOUND_OURS])
    assert driver.outcome == Stored(NEW)
    assert driver.verbs == "put get"


@pytest.mark.parametrize("effect", [CREATE, REPLACE])
def test_a_refusal_caused_by_the_clients_own_earlier_attempt_counts_as_stored(effect: Put) -> None:
    assert outcome_of(effect, Refused(), FOUND_OURS) == Stored(NEW)


@pytest.mark.parametrize("effect", [CREATE, REPLACE])
def test_a_refused_write_returns_the_stored_object_and_costs_one_get(effect: Put) -> None:
    driver = Driver(effect, [Refused(), FOUND_THEIRS])
    assert driver.outcome == Refused(FOUND_THEIRS)
    assert (driver.verbs, driver.pauses) == ("put get", [])


def test_a_conditional_replacement_of_an_absent_key_is_refused() -> None:
    assert outcome_of(REPLACE, Refused(), Missing()) == Refused(None)


def test_a_replacement_in_doubt_is_unknown_if_the_object_has_changed_since() -> None:
    assert isinstance(outcome_of(REPLACE, TIME_OUT, FOUND_THEIRS), Unknown)
    assert isinstance(outcome_of(REPLACE, TIME_OUT, Missing()), Unknown)


def test_a_write_in_doubt_stays_unknown_after_a_later_clear_refusal() -> None:
    answers = [TIME_OUT, FOUND_OLD, Refused(), FOUND_THEIRS]
    assert isinstance(outcome_of(REPLACE, *answers), Unknown)


def test_a_create_in_doubt_is_refused_if_another_clients_object_is_there() -> None:
    assert outcome_of(CREATE, TIME_OUT, FOUND_THEIRS) == Refused(FOUND_THEIRS)


def test_a_replacement_in_doubt_is_repeated_while_the_old_object_is_there() -> None:
    driver = Driver(REPLACE, [TIME_OUT, FOUND_OLD, Stored(NEW)])
    assert driver.outcome == Stored(NEW)
    assert driver.verbs == "put get put"


def test_a_repeat_refused_because_of_a_late_first_attempt_counts_as_stored() -> None:
    assert outcome_of(REPLACE, TIME_OUT, FOUND_OLD, Refused(), FOUND_OURS) == Stored(NEW)
    assert outcome_of(CREATE, TIME_OUT, Missing(), Refused(), FOUND_OURS) == Stored(NEW)


def test_a_conflict_response_is_read_back_and_then_repeated() -> None:
    driver = Driver(REPLACE, [CONFLICT, FOUND_OLD, Stored(NEW)])
    assert (driver.outcome, driver.verbs) == (Stored(NEW), "put get put")
    assert outcome_of(REPLACE, CONFLICT, FOUND_THEIRS) == Refused(FOUND_THEIRS)
    assert outcome_of(CREATE, CONFLICT, Missing(), Stored(NEW)) == Stored(NEW)


def test_a_write_rejected_as_not_executed_is_repeated_without_a_read() -> None:
    driver = Driver(REPLACE, [TURNED_AWAY, TURNED_AWAY, Stored(NEW)])
    assert (driver.outcome, driver.verbs) == (Stored(NEW), "put put put")


def test_a_write_rejected_at_every_attempt_raises() -> None:
    with pytest.raises(StoreError, match=r"put 'HEAD\.json' failed 3 times"):
        outcome_of(REPLACE, *[TURNED_AWAY] * 3, retry_limit=3)


def test_a_write_in_doubt_at_every_attempt_is_unknown_unless_a_last_read_finds_it() -> None:
    doubts = [TIME_OUT, FOUND_OLD] * 2 + [TIME_OUT]
    assert isinstance(outcome_of(REPLACE, *doubts, FOUND_OLD, retry_limit=3), Unknown)
    assert outcome_of(REPLACE, *doubts, FOUND_OURS, retry_limit=3) == Stored(NEW)
    assert isinstance(outcome_of(REPLACE, *doubts, BUSY, retry_limit=3), Unknown)


def test_a_write_with_a_conflict_at_every_attempt_counts_as_stored_if_a_last_read_finds_it() -> (
    None
):
    conflicts = [CONFLICT, FOUND_OLD] * 2 + [CONFLICT]
    assert outcome_of(REPLACE, *conflicts, FOUND_OURS, retry_limit=3) == Stored(NEW)
    assert isinstance(outcome_of(REPLACE, *conflicts, FOUND_OLD, retry_limit=3), Unknown)


def test_a_write_whose_read_back_fails_is_sent_again() -> None:
    assert outcome_of(CREATE, TIME_OUT, BUSY, Stored(NEW)) == Stored(NEW)
    assert outcome_of(CREATE, TIME_OUT, BUSY, Refused(), FOUND_OURS) == Stored(NEW)


def test_a_refusal_that_can_not_be_read_back_is_unknown() -> None:
    assert isinstance(outcome_of(CREATE, Refused(), FORBIDDEN), Unknown)


def test_a_permanent_failure_raises_at_once_unless_an_earlier_attempt_is_in_doubt() -> None:
    with pytest.raises(StoreError, match="403"):
        outcome_of(CREATE, FORBIDDEN)
    outcome = outcome_of(REPLACE, TIME_OUT, FOUND_OLD, FORBIDDEN, FOUND_OLD)
    assert isinstance(outcome, Unknown)


def test_a_refused_create_is_repeated_if_no_object_is_found() -> None:
    assert outcome_of(CREATE, Refused(), Missing(), Stored(NEW)) == Stored(NEW)


ANSWERS = [Stored(NEW), Refused(), BUSY, TURNED_AWAY, CONFLICT, FORBIDDEN]
LOOKS = [FOUND_OURS, FOUND_THEIRS, FOUND_OLD, Missing(), BUSY]


@pytest.mark.parametrize("effect", [CREATE, REPLACE])
def test_no_sequence_of_responses_turns_a_write_in_doubt_into_an_error_or_a_wrong_refusal(
    effect: Put,
) -> None:
    """All scripts of three attempts: a write in doubt never ends as an error, and as Refused
    only for a create with another client's object in its place.
    """
    runs = 0
    ids, settings = Ids(SystemClock(), random.Random(1)), Settings(retry_limit=3)
    for puts in itertools.product(ANSWERS, repeat=3):
        for looks in itertools.product(LOOKS, repeat=3):
            runs += 1
            doubt, last_look = False, None
            put_answers, look_answers = iter(puts), itertools.chain(looks, itertools.repeat(BUSY))
            attempts = expand(effect, ids, settings)
            answer: Any = None
            outcome: Any = None
            while outcome is None:
                try:
                    attempt = attempts.send(answer)
                except StopIteration as end:
                    outcome = end.value
                except StoreError as error:
                    outcome = error
                else:
                    if isinstance(attempt, Put):
                        answer = next(put_answers)
                        doubt = doubt or (isinstance(answer, Failure) and answer.ambiguous)
                    elif isinstance(attempt, Get):
                        answer = last_look = next(look_answers)
                    else:
                        answer = None
            if last_look == FOUND_OURS:
                assert isinstance(outcome, Stored)
            if isinstance(outcome, Refused) and doubt:
                assert effect is CREATE
                assert last_look in (FOUND_THEIRS, FOUND_OLD)
            assert not (isinstance(outcome, StoreError) and doubt)
    assert runs == 6**3 * 5**3


WRITES = [DeleteObject("k"), PutFile("k", "/f"), CopyObject("k", "j"), Put("k", b"x", ANY)]
READS = [Get("k"), Stat("k"), List("k"), *WRITES]


@pytest.mark.parametrize("effect", READS, ids=lambda effect: type(effect).__name__)
def test_other_requests_are_repeated_and_raise_after_the_last_attempt(effect: Request) -> None:
    good: Any = [] if isinstance(effect, List) else Missing()
    driver = Driver(effect, [TIME_OUT, BUSY, good])
    assert driver.outcome == good
    assert driver.asked == [effect] * 3
    with pytest.raises(StoreError, match="failed 4 times, last with: timed out"):
        outcome_of(effect, *[TIME_OUT] * 4, retry_limit=4)
    with pytest.raises(StoreError, match="403"):
        outcome_of(effect, FORBIDDEN)


def test_a_list_is_sorted_whatever_order_the_store_returns() -> None:
    infos = [ObjectInfo(key, 0, OLD, 0.0) for key in ("b", "a", "c")]
    assert [info.key for info in outcome_of(List("x"), infos)] == ["a", "b", "c"]


def test_pauses_between_attempts_grow_with_jitter_up_to_a_limit() -> None:
    settings = {"retry_limit": 12, "retry_base_seconds": 0.1, "retry_cap_seconds": 1.0}
    pauses = Driver(Get("k"), [TIME_OUT] * 11 + [Missing()], **settings).pauses
    assert len(pauses) == 11
    assert all(0 <= pause <= min(1.0, 0.1 * 2**n) for n, pause in enumerate(pauses))
    assert len(set(pauses)) == 11


def test_a_request_is_described_in_errors_without_secrets() -> None:
    key = "s3://AKIAKEY:secret@bucket/table?X-Amz-Signature=abc"
    assert describe(Get(key)) == "get 's3://bucket/table'"
    assert describe(List("orders/_delta_log")) == "list 'orders/_delta_log'"


def test_tokens_are_compared_by_version_if_they_have_one_and_empty_tokens_never_match() -> None:
    assert same_object(Token("a", "1"), Token("b", "1"))
    assert not same_object(Token("a", "1"), Token("a", "2"))
    assert same_object(Token("a"), Token("a", "1"))
    assert not same_object(Token(None), Token(None))


def test_classify_requests_a_repeat_only_if_the_write_is_still_possible() -> None:
    assert classify(CREATE, True, Missing()) == "again"
    assert classify(REPLACE, True, FOUND_OLD) == "again"
    assert classify(REPLACE, False, FOUND_OURS) == Stored(NEW)


# ---------------------------------------------------------------- a limit of writes of one object


@pytest.mark.parametrize("effect", [CREATE, REPLACE])
def test_a_write_that_came_too_soon_is_refused_at_once_if_the_object_has_changed(
    effect: Put,
) -> None:
    driver = Driver(effect, [TOO_SOON, FOUND_THEIRS])
    assert driver.outcome == Refused(FOUND_THEIRS, limited=True)
    assert (driver.verbs, driver.pauses) == ("put get", [])


@pytest.mark.parametrize(("effect", "as_it_was"), [(CREATE, Missing()), (REPLACE, FOUND_OLD)])
def test_a_write_that_came_too_soon_waits_about_a_second_if_nothing_has_changed(
    effect: Put, as_it_was: Any
) -> None:
    driver = Driver(effect, [TOO_SOON, as_it_was, TOO_SOON, as_it_was, Stored(NEW)])
    assert driver.outcome == Stored(NEW, limited=True)
    assert driver.verbs == "put get put get put"
    assert len(driver.pauses) == 2
    assert all(0.6 <= pause <= 1.2 for pause in driver.pauses)


@pytest.mark.parametrize("effect", [CREATE, REPLACE])
def test_a_write_that_a_gateway_sent_twice_counts_as_stored_if_its_copy_came_too_soon(
    effect: Put,
) -> None:
    assert outcome_of(effect, TOO_SOON, FOUND_OURS) == Stored(NEW, limited=True)


def test_a_replacement_in_doubt_stays_unknown_after_one_that_came_too_soon() -> None:
    answers = [TIME_OUT, FOUND_OLD, TOO_SOON, FOUND_THEIRS]
    assert isinstance(outcome_of(REPLACE, *answers), Unknown)


@pytest.mark.parametrize(("effect", "as_it_was"), [(CREATE, Missing()), (REPLACE, FOUND_OLD)])
def test_a_write_that_came_too_soon_each_time_fails_and_has_stored_nothing(
    effect: Put, as_it_was: Any
) -> None:
    with pytest.raises(StoreError, match="failed 3 times, last with: 429"):
        outcome_of(effect, *[TOO_SOON, as_it_was] * 3, retry_limit=3)


def test_the_last_write_that_came_too_soon_is_refused_if_the_object_has_changed() -> None:
    answers = [TOO_SOON, FOUND_OLD, TOO_SOON, FOUND_THEIRS]
    assert outcome_of(REPLACE, *answers, retry_limit=2) == Refused(FOUND_THEIRS, limited=True)


@pytest.mark.parametrize("effect", [DeleteObject("a"), Put("a", OURS, ANY)])
def test_a_request_without_condition_that_came_too_soon_waits_about_a_second(effect: Any) -> None:
    driver = Driver(effect, [TOO_SOON, None])
    assert len(driver.pauses) == 1
    assert 0.6 <= driver.pauses[0] <= 1.2

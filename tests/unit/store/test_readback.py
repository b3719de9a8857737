"""Retries and read-back, driven attempt by attempt: no store, no clock."""

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
CONFLICT = Failure("409", ambiguous=False, conflict=True)
FORBIDDEN = Failure("403", ambiguous=False, permanent=True)

FOUND_OURS = Found(OURS, NEW, len(OURS))
FOUND_THEIRS = Found(THEIRS, NEW, len(THEIRS))
FOUND_OLD = Found(b"as it was", OLD, 9)


class Driver:
    """Answers attempts from a script and records them; pauses take no time."""

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
def test_a_write_that_is_acknowledged_is_one_request(effect: Put) -> None:
    assert Driver(effect, [Stored(NEW)]).verbs == "put"
    assert outcome_of(effect, Stored(NEW)) == Stored(NEW)


@pytest.mark.parametrize("effect", [CREATE, REPLACE])
@pytest.mark.parametrize("lost", [BUSY, TIME_OUT])
def test_a_lost_acknowledgement_is_found_by_reading_back(effect: Put, lost: Failure) -> None:
    driver = Driver(effect, [lost, FOUND_OURS])
    assert driver.outcome == Stored(NEW)
    assert driver.verbs == "put get"


@pytest.mark.parametrize("effect", [CREATE, REPLACE])
def test_a_refusal_by_our_own_earlier_write_is_success(effect: Put) -> None:
    assert outcome_of(effect, Refused(), FOUND_OURS) == Stored(NEW)


@pytest.mark.parametrize("effect", [CREATE, REPLACE])
def test_a_lost_race_brings_the_winner_with_it_and_costs_one_get(effect: Put) -> None:
    driver = Driver(effect, [Refused(), FOUND_THEIRS])
    assert driver.outcome == Refused(FOUND_THEIRS)
    assert (driver.verbs, driver.pauses) == ("put get", [])


def test_a_match_on_an_absent_key_is_refused() -> None:
    assert outcome_of(REPLACE, Refused(), Missing()) == Refused(None)


def test_a_replacement_in_doubt_behind_which_the_object_changed_is_unknown() -> None:
    assert isinstance(outcome_of(REPLACE, TIME_OUT, FOUND_THEIRS), Unknown)
    assert isinstance(outcome_of(REPLACE, TIME_OUT, Missing()), Unknown)


def test_a_doubt_is_not_forgotten_by_a_later_clear_refusal() -> None:
    answers = [TIME_OUT, FOUND_OLD, Refused(), FOUND_THEIRS]
    assert isinstance(outcome_of(REPLACE, *answers), Unknown)


def test_a_create_in_doubt_with_anothers_object_there_is_refused() -> None:
    assert outcome_of(CREATE, TIME_OUT, FOUND_THEIRS) == Refused(FOUND_THEIRS)


def test_a_replacement_in_doubt_is_repeated_while_the_old_object_is_there() -> None:
    driver = Driver(REPLACE, [TIME_OUT, FOUND_OLD, Stored(NEW)])
    assert driver.outcome == Stored(NEW)
    assert driver.verbs == "put get put"


def test_a_late_first_attempt_refuses_the_repeat_and_is_recognised() -> None:
    assert outcome_of(REPLACE, TIME_OUT, FOUND_OLD, Refused(), FOUND_OURS) == Stored(NEW)
    assert outcome_of(CREATE, TIME_OUT, Missing(), Refused(), FOUND_OURS) == Stored(NEW)


def test_a_conflict_is_read_back_and_then_tried_again() -> None:
    driver = Driver(REPLACE, [CONFLICT, FOUND_OLD, Stored(NEW)])
    assert (driver.outcome, driver.verbs) == (Stored(NEW), "put get put")
    assert outcome_of(REPLACE, CONFLICT, FOUND_THEIRS) == Refused(FOUND_THEIRS)
    assert outcome_of(CREATE, CONFLICT, Missing(), Stored(NEW)) == Stored(NEW)


def test_a_write_turned_away_is_repeated_without_a_read_back() -> None:
    driver = Driver(REPLACE, [TURNED_AWAY, TURNED_AWAY, Stored(NEW)])
    assert (driver.outcome, driver.verbs) == (Stored(NEW), "put put put")


def test_a_write_that_was_only_ever_turned_away_raises() -> None:
    with pytest.raises(StoreError, match=r"put 'HEAD\.json' failed 3 times"):
        outcome_of(REPLACE, *[TURNED_AWAY] * 3, retry_limit=3)


def test_attempts_in_doubt_to_the_end_are_unknown_after_a_last_read() -> None:
    doubts = [TIME_OUT, FOUND_OLD] * 2 + [TIME_OUT]
    assert isinstance(outcome_of(REPLACE, *doubts, FOUND_OLD, retry_limit=3), Unknown)
    assert outcome_of(REPLACE, *doubts, FOUND_OURS, retry_limit=3) == Stored(NEW)
    assert isinstance(outcome_of(REPLACE, *doubts, BUSY, retry_limit=3), Unknown)


def test_a_conflict_to_the_end_may_be_with_our_own_write_sent_twice() -> None:
    conflicts = [CONFLICT, FOUND_OLD] * 2 + [CONFLICT]
    assert outcome_of(REPLACE, *conflicts, FOUND_OURS, retry_limit=3) == Stored(NEW)
    assert isinstance(outcome_of(REPLACE, *conflicts, FOUND_OLD, retry_limit=3), Unknown)


def test_a_read_back_that_fails_leads_to_the_same_write_again() -> None:
    assert outcome_of(CREATE, TIME_OUT, BUSY, Stored(NEW)) == Stored(NEW)
    assert outcome_of(CREATE, TIME_OUT, BUSY, Refused(), FOUND_OURS) == Stored(NEW)


def test_a_refusal_that_cannot_be_read_back_is_unknown() -> None:
    assert isinstance(outcome_of(CREATE, Refused(), FORBIDDEN), Unknown)


def test_a_permanent_failure_raises_at_once_unless_an_attempt_is_in_doubt() -> None:
    with pytest.raises(StoreError, match="403"):
        outcome_of(CREATE, FORBIDDEN)
    outcome = outcome_of(REPLACE, TIME_OUT, FOUND_OLD, FORBIDDEN, FOUND_OLD)
    assert isinstance(outcome, Unknown)


def test_a_create_refused_where_nothing_is_found_is_decided_by_the_same_create() -> None:
    assert outcome_of(CREATE, Refused(), Missing(), Stored(NEW)) == Stored(NEW)


ANSWERS = [Stored(NEW), Refused(), BUSY, TURNED_AWAY, CONFLICT, FORBIDDEN]
LOOKS = [FOUND_OURS, FOUND_THEIRS, FOUND_OLD, Missing(), BUSY]


@pytest.mark.parametrize("effect", [CREATE, REPLACE])
def test_no_run_of_answers_turns_a_write_in_doubt_into_a_no(effect: Put) -> None:
    """Every script of three attempts: doubt never ends as an error, and as Refused
    only for a create with another's object in its place."""
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
def test_other_requests_are_repeated_and_then_raise(effect: Request) -> None:
    good: Any = [] if isinstance(effect, List) else Missing()
    driver = Driver(effect, [TIME_OUT, BUSY, good])
    assert driver.outcome == good
    assert driver.asked == [effect] * 3
    with pytest.raises(StoreError, match="failed 4 times, last with: timed out"):
        outcome_of(effect, *[TIME_OUT] * 4, retry_limit=4)
    with pytest.raises(StoreError, match="403"):
        outcome_of(effect, FORBIDDEN)


def test_a_list_is_sorted_whatever_order_the_store_has() -> None:
    infos = [ObjectInfo(key, 0, OLD, 0.0) for key in ("b", "a", "c")]
    assert [info.key for info in outcome_of(List("x"), infos)] == ["a", "b", "c"]


def test_pauses_grow_are_jittered_and_are_capped() -> None:
    settings = {"retry_limit": 12, "retry_base_seconds": 0.1, "retry_cap_seconds": 1.0}
    pauses = Driver(Get("k"), [TIME_OUT] * 11 + [Missing()], **settings).pauses
    assert len(pauses) == 11
    assert all(0 <= pause <= min(1.0, 0.1 * 2**n) for n, pause in enumerate(pauses))
    assert len(set(pauses)) == 11


def test_a_request_is_described_without_secrets() -> None:
    key = "s3://AKIAKEY:secret@bucket/table?X-Amz-Signature=abc"
    assert describe(Get(key)) == "get 's3://bucket/table'"
    assert describe(List("orders/_delta_log")) == "list 'orders/_delta_log'"


def test_tokens_agree_by_version_first_and_never_by_nothing() -> None:
    assert same_object(Token("a", "1"), Token("b", "1"))
    assert not same_object(Token("a", "1"), Token("a", "2"))
    assert same_object(Token("a"), Token("a", "1"))
    assert not same_object(Token(None), Token(None))


def test_classify_is_pure_and_says_again_only_where_the_write_may_still_be_made() -> None:
    assert classify(CREATE, False, True, Missing()) == "again"
    assert classify(REPLACE, True, True, FOUND_OLD) == "again"
    assert classify(REPLACE, True, False, FOUND_OURS) == Stored(NEW)

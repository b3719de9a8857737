"""Time measured by phases, where blocks nest or overlap; without a listener it costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla import phases as measuring
from lakevilla.phases import UNMEASURED, Phases, Span, during, of, streamed
from tests.support.by_hand import StoppedClock


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock(100.0)


@pytest.fixture
def spans() -> list[Span]:
    return []


@pytest.fixture
def phases(clock: StoppedClock, spans: list[Span]) -> Phases:
    return Phases("t1", clock, lambda _, span: spans.append(span))


def test_an_inner_block_has_its_own_time_and_the_outer_block_the_rest(
    clock: StoppedClock, spans: list[Span], phases: Phases
) -> None:
    with of(phases), during("validate"):
        clock.seconds += 1
        with during("data", "orders"):
            clock.seconds += 5
        clock.seconds += 2
    inner, outer = spans
    assert (inner.phase, inner.table, inner.seconds, inner.own_seconds) == ("data", "orders", 5, 5)
    assert (outer.phase, outer.seconds, outer.own_seconds) == ("validate", 8, 3)
    assert (outer.began, outer.ended, inner.began, inner.ended) == (100, 108, 101, 106)


def test_own_seconds_of_overlapping_blocks_never_count_twice(
    clock: StoppedClock, spans: list[Span], phases: Phases
) -> None:
    with of(phases):
        one, two = during("metadata", "a"), during("metadata", "b")
    one.__enter__()
    clock.seconds += 1
    two.__enter__()
    clock.seconds += 3
    one.__exit__(None, None, None)
    clock.seconds += 2
    two.__exit__(None, None, None)
    assert [(span.table, span.seconds) for span in spans] == [("a", 4), ("b", 5)]
    assert sum(span.own_seconds for span in spans) == 6


def test_freeing_that_overlaps_publishing_has_only_the_time_after_it(
    clock: StoppedClock, spans: list[Span], phases: Phases
) -> None:
    with of(phases):
        publish, free = during("publish", "a"), during("free")
    publish.__enter__()
    free.__enter__()
    clock.seconds += 6
    publish.__exit__(None, None, None)
    clock.seconds += 1
    free.__exit__(None, None, None)
    assert [(s.phase, s.seconds, s.own_seconds) for s in spans] == [
        ("publish", 6, 6),
        ("free", 7, 1),
    ]


def test_a_stream_is_one_span_without_the_time_of_its_reader(
    clock: StoppedClock, spans: list[Span], phases: Phases
) -> None:
    def batches() -> Iterator[int]:
        for number in (1, 2):
            clock.seconds += 3
            yield number

    for _ in streamed(phases, "data", "a", batches()):
        clock.seconds += 10
    (span,) = spans
    assert (span.seconds, span.own_seconds, span.began, span.ended) == (6, 6, 100, 126)


def test_a_block_that_raises_is_measured_and_ended(
    clock: StoppedClock, spans: list[Span], phases: Phases
) -> None:
    with pytest.raises(RuntimeError), of(phases), during("decide"):
        clock.seconds += 1
        raise RuntimeError
    assert [span.seconds for span in spans] == [1]
    assert during("data") is UNMEASURED, "the thread works for nobody now"


@pytest.mark.parametrize("progress", [False, True])
def test_measuring_makes_no_objects_if_no_listener_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, progress: bool
) -> None:
    def made(*given: object, **more: object) -> None:
        raise AssertionError("something was made to measure with")

    monkeypatch.setattr(measuring.Phases, "__init__", made)
    monkeypatch.setattr(measuring.Span, "__init__", made)
    monkeypatch.setattr("lakevilla.api.client.client.phase_event", made)
    monkeypatch.setattr("lakevilla.api.client.client.transaction_event", made)
    entered = []
    monkeypatch.setattr(
        "lakevilla.api.execution.executor.of", lambda one: entered.append(one) or UNMEASURED
    )
    with lv.connect(tmp_path, progress=progress) as lake:
        lake.create_table("t", [{"a": 1}])
        lake.run(lambda txn: txn.update("t", {"a": "a + 1"}, where="true"))
        assert lake.read("t").to_pylist() == [{"a": 2}]
    assert entered, "verbs ask whose time it is"
    assert set(entered) == {None}
    assert during("data") is during("free") is of(None) is UNMEASURED

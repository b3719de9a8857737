"""A verb is refused during another verb and waits for a save; a save waits briefly for a verb."""

from __future__ import annotations

import threading

import pytest

import lakevilla as lv
from lakevilla.api.execution import turns as module
from lakevilla.api.execution.turns import Turns

SOON = 20.0


def test_a_verb_is_refused_while_its_own_or_another_thread_runs_a_verb() -> None:
    turns, refused = Turns("t"), []

    def other() -> None:
        with pytest.raises(lv.InvalidOperation, match="another thread") as caught, turns.verb():
            raise AssertionError("two verbs at a time")
        refused.append(caught.value.txn_id)

    with turns.verb():
        with pytest.raises(lv.InvalidOperation, match="running another operation"), turns.verb():
            raise AssertionError("a verb within a verb")
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(SOON)
    assert refused == ["t"]
    with turns.verb():
        pass


def test_a_verb_waits_for_a_save() -> None:
    turns, order = Turns("t"), []
    saving, goes_on = threading.Event(), threading.Event()

    def save() -> None:
        with turns.between_verbs() as may:
            assert may
            saving.set()
            goes_on.wait(SOON)
            order.append("saved")

    def verb() -> None:
        with turns.verb():
            order.append("verb")

    threads = [threading.Thread(target=save)]
    threads[0].start()
    assert saving.wait(SOON)
    threads.append(threading.Thread(target=verb))
    threads[1].start()
    goes_on.set()
    for thread in threads:
        thread.join(SOON)
    assert order == ["saved", "verb"]


def test_a_save_gets_a_turn_between_verbs_that_follow_each_other_closely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plain lock would not do: the thread of the verbs takes it again at once."""
    monkeypatch.setattr(module, "_WAITS_SECONDS", SOON)
    turns, saved = Turns("t"), threading.Event()
    waits = threading.Event()

    def save() -> None:
        waits.set()
        with turns.between_verbs() as may:
            assert may
            saved.set()

    thread = threading.Thread(target=save)
    verbs_since = 0
    with turns.verb():
        thread.start()
        assert waits.wait(SOON)
        while not turns._way_in.locked():
            pass
    while not saved.is_set():
        with turns.verb():
            verbs_since += not saved.is_set()
    thread.join(SOON)
    assert verbs_since == 0


def test_a_save_gives_up_if_a_verb_runs_long_and_delays_no_later_verb(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_WAITS_SECONDS", 0.01)
    turns, may_save = Turns("t"), []

    def save() -> None:
        with turns.between_verbs() as may:
            may_save.append(may)

    with turns.verb():
        thread = threading.Thread(target=save)
        thread.start()
        thread.join(SOON)
    assert may_save == [False]
    with turns.verb():
        pass

"""Planted bugs on stores that take few writes of one object (note 76)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lakevilla.store import readback
from lakevilla.store.base import Failure
from lakevilla.transaction.commit.together import crowd, replacing
from lakevilla_testing.planted.bugs import attribute, instead, planted


@planted(for_histories=False)
def sent_without_a_look() -> Iterator[None]:
    """A client that is turned away sends the same write again, and looks only when refused."""
    original = readback._write

    def write(effect: Any, backoff: Any) -> Any:
        attempts, answer = original(effect, backoff), None
        while True:
            try:
                attempt = attempts.send(answer)
            except StopIteration as end:
                return end.value
            answer = yield attempt
            if isinstance(answer, Failure):
                answer = replace(answer, of_object=False)

    with instead(original, write):
        yield


@planted(for_histories=False)
def sent_as_soon_as_ready() -> Iterator[None]:
    """A client replaces HEAD again though the store will not take it yet."""
    original = crowd.wait_for_limit

    def at_once(context: Any) -> Any:
        yield from ()

    with instead(original, at_once):
        yield


@planted(for_histories=False)
def others_left_behind() -> Iterator[None]:
    """A client that is first each time replaces HEAD without those that wait for it."""
    original = crowd._lead_crowd

    def leads(context: Any, group: Any) -> Any:
        if group.is_crowded(context):
            yield from original(context, group)
            return
        yield from crowd.wait_for_limit(context)
        attempt = yield from crowd._prepare_batch(context, group)
        if attempt is not None:
            yield from replacing.carry_out(context, group, attempt)

    with attribute(crowd, "_lead_crowd", leads):
        yield

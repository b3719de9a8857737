"""A transaction that does nothing but to apply one state to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.run import ATTEMPTS, Begin, run
from lakevilla.results import MergeResult
from lakevilla.store.effects import Program
from lakevilla.transaction.verbs.applying.apply import Outcome

#: What is done in it.
Applies = Callable[[Executor[Any]], Program[dict[str, Outcome]]]


def in_one_transaction(
    client: LakeClient, begin: Begin, merged: str, program: Applies
) -> MergeResult:
    """Carry it out, again from the start where others were quicker."""
    last: list[Executor[Any]] = []

    def once(executor: Executor[Any]) -> dict[str, str]:
        last[:] = [executor]
        return executor.applied(program(executor))

    outcomes = run(client, begin, once, ATTEMPTS) or {}
    executor = last[0]
    result = executor.result if executor.state.work.done else None
    return MergeResult(None if result is None else result.global_version, merged, outcomes)

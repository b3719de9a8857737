"""What a session asks of its lake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.snapshot import Snapshot
from lakevilla.api.transaction import Transaction
from lakevilla.results import Outcome

__all__ = ["Host"]

T = TypeVar("T")


class Host(Protocol[Frame]):
    """The verbs of a lake that statements become."""

    _executor: type[Executor[Frame]]

    def transaction(self, **options: Any) -> Transaction[Frame]: ...
    def snapshot(self) -> Snapshot[Frame]: ...
    def outcome(self, txn_id: str | None = None) -> Outcome: ...
    def run(
        self, fn: Callable[[Transaction[Frame]], T], *args: Any, attempts: int = ..., **options: Any
    ) -> T | None: ...

"""What a session asks of its lake."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, Self, TypeVar

from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.snapshot import Snapshot
from lakevilla.api.table import Table
from lakevilla.api.transaction import Transaction
from lakevilla.results import MergeResult, Outcome, Ref, TransactionInfo

__all__ = ["Host"]

T = TypeVar("T")


class Host(Protocol[Frame]):
    """The verbs of a lake that statements become."""

    _client: LakeClient
    _executor: type[Executor[Frame]]

    def transaction(self, **options: Any) -> Transaction[Frame]: ...
    def snapshot(
        self, version: int | None = None, timestamp: datetime | None = None
    ) -> Snapshot[Frame]: ...
    def run(
        self, fn: Callable[[Transaction[Frame]], T], *args: Any, attempts: int = ..., **options: Any
    ) -> T | None: ...
    def outcome(self, txn_id: str | None = None) -> Outcome: ...
    def transactions(self) -> list[TransactionInfo]: ...
    def table(self, name: str) -> Table[Frame]: ...
    def on(self, name: str) -> Self: ...
    def refs(self) -> list[Ref]: ...
    def branch(self, name: str, at: int | datetime | str | None = None) -> Ref: ...
    def tag(self, name: str, at: int | datetime | str | None = None) -> Ref: ...
    def delete_ref(self, name: str) -> None: ...
    def merge(self, branch: str, *, delete: bool = False) -> MergeResult: ...

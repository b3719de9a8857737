"""Access to the inside of a lake or a transaction: its store, requests, clock, and known HEAD.

Tests of the protocol exchange a store for one that fails, count requests, or carry out a program.
They reach all of that here, and nowhere by a private attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lakevilla.api.client.client import LakeClient
from lakevilla.clock import Clock
from lakevilla.engines.base import Engine
from lakevilla.lake.context import Context
from lakevilla.store.base import Store
from lakevilla.store.effects import Effect, Program
from lakevilla.store.runner import RequestCounter

T = TypeVar("T")


class Inside:
    """The parts of one client of a lake. Those with a setter can be exchanged.

    Attributes
    ----------
    client : LakeClient
        The client itself, for what has no name here.
    """

    def __init__(self, client: LakeClient) -> None:
        self.client = client

    @property
    def store(self) -> Any:
        """The store that answers the client's requests."""
        return self.client.runner.store

    @store.setter
    def store(self, store: Store) -> None:
        self.client.runner.store = store

    @property
    def perform(self) -> Callable[[Effect], object]:
        """The function that carries out one effect."""
        return self.client.runner._perform

    @perform.setter
    def perform(self, perform: Callable[[Effect], object]) -> None:
        self.client.runner._perform = perform  # type: ignore[method-assign]

    @property
    def requests(self) -> RequestCounter:
        """The requests that the client has made."""
        return self.client.runner.requests

    @property
    def context(self) -> Context:
        """Return the context of programs: settings, caches, engine, clock."""
        return self.client.context

    @property
    def held(self) -> Any:
        """HEAD with its version token, as the client last read it."""
        return self.client.context.held

    @held.setter
    def held(self, held: Any) -> None:
        self.client.context.held = held

    @property
    def clock(self) -> Clock:
        """The clock by which the client computes ages."""
        return self.client.context.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self.client.context.clock = clock

    @property
    def engine(self) -> Any:
        """Return the engine, which reads and writes rows."""
        return self.client.context.engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        self.client.context.engine = engine

    def run(self, program: Program[T]) -> T:
        """Carry out a program and return its result."""
        return self.client.run(program)


def inside(holder: Any) -> Inside:
    """Return the parts of a lake, a table, a snapshot, or another object with a client."""
    return Inside(holder._client)


def executor(holder: Any) -> Any:
    """Return what carries out the verbs of a transaction, or the reads of a snapshot."""
    return holder._executor

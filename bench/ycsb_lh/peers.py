"""YCSB-LH on Spark+Delta and pyiceberg: one operation a commit, by clients that are threads.

A commit that loses is tried again by its client, from the newest state, so often as the paper
lets Spark try.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Protocol, cast

import pyarrow as pa

from bench.harness import peers
from bench.harness.store.places import Places
from bench.ycsb_lh.generators import key_of
from bench.ycsb_lh.journal import Journal
from bench.ycsb_lh.records import KEY, NAMES, modified_in, rows
from bench.ycsb_lh.systems import RETRIES
from bench.ycsb_lh.workload import Operation

PEERS = ("Spark+Delta", "pyiceberg")


class _Peer(peers.Peer, Protocol):
    def twin(self) -> _Peer: ...

    def literal(self, text: str) -> str: ...

    def is_conflict(self, error: Exception) -> bool: ...


@dataclass(frozen=True, slots=True)
class OfPeer:
    """A peer of the harness; see ``systems.System``."""

    peer: _Peer

    def create(self, tables: Sequence[str], data: pa.Table) -> None:
        self.peer.create(tables, data)

    @contextmanager
    def open(self) -> Iterator[None]:
        yield  # a client has its own handles, and Spark's all one session

    def work(
        self, opened: None, table: str, todo: Iterable[Operation], journal: Journal
    ) -> Iterator[str]:
        mine = self.peer.twin()
        for operation in todo:
            journal.begin(operation)
            yield operation.kind
            for _ in range(RETRIES + 1):
                try:
                    _perform(mine, table, operation, journal)
                    journal.acknowledge()
                    break
                except Exception as error:
                    if not mine.is_conflict(error):
                        raise
                    journal.counts.aborts += 1
            else:
                journal.give_up()

    def contents(self, table: str) -> pa.Table:
        return self.peer.read(table)

    def close(self) -> None:
        self.peer.close()


def _perform(mine: _Peer, table: str, operation: Operation, journal: Journal) -> None:
    key, value = key_of(operation.number), operation.value
    one = f"{KEY} = '{key}'"
    if operation.kind in ("read", "rmw"):
        found = mine.read(table, one)
        journal.found(operation, found.num_rows)
        if operation.kind == "rmw":
            value = modified_in(found, operation)
    if operation.kind == "scan":
        mine.read(table, f"{KEY} >= '{key}'").sort_by(KEY).slice(0, operation.length)
    if operation.kind == "insert":
        mine.append([table], rows(operation.number, 1, Random(operation.number)))
    if operation.kind in ("update", "rmw"):
        mine.update(table, {NAMES[operation.field]: mine.literal(value)}, one)


def of_peer(name: str, places: Places) -> OfPeer:
    """A peer by name; raises ``NotInstalled`` where it is not here."""
    return OfPeer(cast(_Peer, peers.peer(name, places)))

"""Traces of the model of HEAD on the code.

Compared are the commits of HEAD in order, and the transactions in each version of the logs.
"""

from __future__ import annotations

import json
import re

import pyarrow as pa

from lakevilla.errors import ConflictError, ForeignConflict, TransactionAborted
from lakevilla.global_log.head import HEAD_KEY
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.read_write import append
from lakevilla_testing.histories.attempts import SCHEMA
from lakevilla_testing.histories.exhaustive import set_up_once
from lakevilla_testing.tables import delta_writer
from lakevilla_testing.world.following import Diverged
from lakevilla_testing.world.scheduler import Simulation
from models.head import TABLES, Foreign, State, Writer
from models.head import Head as HeadModel
from tests.support.simulated.commits import add_to, begin, end, lake, read
from tests.support.simulated.traced import Traced

#: The scenarios without faults and without helpers.
TRACED = (
    "two updates",
    "write skew",
    "a foreign update, no helper",
    "a foreign append",
    "two appends",
)
_ROW = pa.table({"id": [60], "balance": [0], "items": [""]}, schema=SCHEMA)
_TXNS = re.compile(rb'"txns":(\[[^\]]*\])')


class TracedHead(Traced):
    """A run of the model of HEAD, and the real clients that follow it."""

    def __init__(self, scenario: str, seed: int, flaw: str = "") -> None:
        super().__init__(scenario, seed, flaw)
        self.names: dict[str, str] = {}
        self.told: dict[str, str] = {}

    def tables(self) -> Simulation:
        return _lake()

    def model(self) -> HeadModel:
        return HeadModel(self.flaw, faults=0, scenarios=(self.scenario,))

    # -- clients ---------------------------------------------------------------------

    def begin(self, state: State) -> None:
        self.clients = {
            actor.name: self.simulation.add(actor.name, self._program(actor))
            for actor in state.actors
        }

    def _program(self, actor):
        if isinstance(actor, Writer):
            return lambda client: self._write(client, actor)
        assert isinstance(actor, Foreign)
        if actor.updates:
            return lambda client: delta_writer.rewrite(client, actor.table, dict)
        row = {"id": 50, "balance": 0, "items": ""}
        return lambda client: delta_writer.append(client, actor.table, [row])

    def _write(self, client, actor):
        txn = begin(client)
        self.names[txn.id] = actor.name
        try:
            for table in actor.tables:
                if table in actor.reads:
                    yield from read(txn, table)
                if table in actor.updates:
                    yield from add_to(txn, table, 1)
                elif table in actor.appends:
                    yield from append(txn, table, _ROW.to_reader())
            yield from commit(txn)
        except ForeignConflict:
            pass  # it is committed; its owner is told that its operations were replayed
        except (ConflictError, TransactionAborted):
            self.told[actor.name] = "no"
            yield from end(txn)
            return
        self.told[actor.name] = "yes"

    # -- steps -----------------------------------------------------------------------

    def step(self, name: str) -> bool:
        who, _, what = name.partition(" ")
        client, leader = self.clients[who], self.leader
        if what in ("reads HEAD", "takes HEAD") or what.startswith("finds a newer HEAD"):
            self._get_head(client)
        elif what.startswith("reads "):
            others = tuple(f"{one}/" for one in TABLES if one != what[-1])
            later = others if what[-1] == "x" else ()
            leader.until(client, lambda verb, key: verb.startswith("put") or key.startswith(later))
        elif what in ("uploads", "prepares") or what.startswith("prepares "):
            is_head = what == "uploads"
            leader.until(client, lambda verb, key: _is_put(verb, key, head=is_head))
        elif what == "redoes":
            for _ in self.simulation.requests_of(client):
                leader.once(client)
        elif what in ("is in conflict", "has published"):
            leader.until(client, lambda verb, key: False)
        elif what == "replaces HEAD":
            self._put(client, head=True, outcome="stored")
        elif what.startswith("creates "):
            self._put(client, head=False, outcome="stored")
        elif what.startswith("is refused in "):
            self._put(client, head=False, outcome="refused")
        elif what.startswith("reconciles "):
            leader.until(client, lambda verb, key: _is_put(verb, key, head=True))
            self._put(client, head=True, outcome="stored")
        elif what.startswith("loses the race, "):
            self._put(client, head=True, outcome="refused")
            if what.endswith("redoes"):
                self._get_head(client)
            elif what.endswith("moves to HEAD"):
                leader.until(client, lambda verb, key: verb.startswith("put"))
            else:
                leader.until(client, lambda verb, key: False)
        elif what != "has committed":
            raise Diverged(f"no client can be led to {name}")
        return True

    def _get_head(self, client) -> None:
        self.leader.until(client, lambda verb, key: key == HEAD_KEY)
        self.expect(client, "get", HEAD_KEY, "found")

    def _put(self, client, *, head: bool, outcome: str) -> None:
        following = self.leader.next_of(client)
        if following is None or not _is_put(*following, head=head):
            raise Diverged(f"{client.name} is at {following}")
        self.expect(client, "put", following[1], outcome)

    # -- what is compared --------------------------------------------------------------

    def compare(self, state: State) -> None:
        wanted = [_kind(one.txn) for one in state.head.commits]
        self.same("commits of HEAD", self._commits(), wanted)
        for table in TABLES:
            logged = self._logged(table)
            entries = [[_kind(one) for one in entry.ids] for entry in state.log(table)[1:]]
            expected = [[one for one in ids if one != "reconcile"] for ids in entries]
            self.same(f"the log of {table}", logged, expected)

    def compare_ends(self, state: State) -> None:
        for txn, what in state.told:
            self.same(f"{txn} was told", self.told.get(txn), what)

    def _commits(self) -> list[str]:
        return [
            "reconcile" if one.kind == "reconcile" else self.names[one.txn]
            for one in self.head().commits
            if one.kind == "reconcile" or one.txn in self.names
        ]

    def _logged(self, table: str) -> list[list[str]]:
        """Return the transactions of each version that was made after the tables."""
        keys = sorted(
            key for key in self.simulation.store.objects if key.startswith(f"{table}/_delta_log/")
        )
        found = []
        for key in keys[2:]:
            txns = _TXNS.search(self.simulation.store.objects[key].body)
            ids = json.loads(txns[1]) if txns else []
            found.append([self.names[txn] for txn in ids if txn in self.names])
        return found


@set_up_once
def _lake(faults=None, schedule=None):
    return lake(faults, schedule, tables=TABLES)


def _is_put(verb: str, key: str, *, head: bool) -> bool:
    return verb.startswith("put") and (key == HEAD_KEY if head else "/_delta_log/" in key)


def _kind(txn: str) -> str:
    return txn.partition(" ")[0]

"""Traces of the model of HEAD on the code: real clients are led through the steps of the model.

After each step the store is compared with the model's state: the commits of HEAD in order, and the
transactions in each version of the logs. A step of the model is a few requests of a client.
"""

from __future__ import annotations

import json
import random
import re

import pyarrow as pa

from lakevilla.errors import ConflictError, ForeignConflict, TransactionAborted
from lakevilla.global_log.head import HEAD_KEY, Head
from lakevilla.store.codec import decode
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.read_write import append
from lakevilla_testing.histories.attempts import SCHEMA
from lakevilla_testing.histories.exhaustive import set_up_once
from lakevilla_testing.tables import delta_writer
from lakevilla_testing.world.following import Diverged, Leader
from models.checker import walk
from models.head import TABLES, Foreign, State, Writer
from models.head import Head as HeadModel
from tests.support.simulated.commits import add_to, begin, end, lake, read

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


class Traced:
    """A run of the model, and the real clients that follow it."""

    def __init__(self, scenario: str, seed: int, flaw: str = "") -> None:
        self.scenario, self.seed, self.flaw = scenario, seed, flaw
        self.path: list[str] = []
        self.names: dict[str, str] = {}
        self.told: dict[str, str] = {}
        self.simulation = _lake()
        self.leader = Leader(self.simulation)

    def follow(self) -> int:
        """Lead the clients along a run that is drawn; return how many steps were compared."""
        model = HeadModel(self.flaw, faults=0, scenarios=(self.scenario,))
        state = model.initial()
        try:
            for name, state in walk(model, random.Random(f"{self.scenario}/{self.seed}")):
                if not self.path:
                    self._begin(state)
                else:
                    self._step(name)
                self.path.append(name)
                self._compare(state)
            wrong = {txn for txn, what in state.told if self.told[txn] != what}
            if wrong:
                raise Diverged(f"{wrong} were told something else")
        except AssertionError as error:
            error.add_note(f"after {' > '.join(self.path)}, at {name}; the requests:")
            error.add_note("\n".join(map(str, self.simulation.trace)))
            raise
        finally:
            self.simulation.dispose()
        return len(self.path) - 1

    # -- clients ---------------------------------------------------------------------

    def _begin(self, state: State) -> None:
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

    def _step(self, name: str) -> None:
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

    def _get_head(self, client) -> None:
        self.leader.until(client, lambda verb, key: key == HEAD_KEY)
        self._expect(client, "get", HEAD_KEY, "found")

    def _put(self, client, *, head: bool, outcome: str) -> None:
        following = self.leader.next_of(client)
        if following is None or not _is_put(*following, head=head):
            raise Diverged(f"{client.name} is at {following}")
        self._expect(client, "put", following[1], outcome)

    def _expect(self, client, verb: str, key: str, outcome: str) -> None:
        line = self.leader.once(client)
        found = line.verb.startswith(verb) and line.key == key and line.outcome.startswith(outcome)
        if not found:
            raise Diverged(f"not {verb} {key} {outcome}, but {line}")

    # -- what is compared --------------------------------------------------------------

    def _compare(self, state: State) -> None:
        wanted = [_kind(one.txn) for one in state.head.commits]
        found = self._commits()
        if found != wanted:
            raise Diverged(f"HEAD has {found}, and the model {wanted}")
        for table in TABLES:
            logged = self._logged(table)
            entries = [[_kind(one) for one in entry.ids] for entry in state.log(table)[1:]]
            expected = [[one for one in ids if one != "reconcile"] for ids in entries]
            if logged != expected:
                raise Diverged(f"{table} has {logged}, and the model {expected}")

    def _commits(self) -> list[str]:
        stored = self.simulation.store.objects.get(HEAD_KEY)
        assert stored is not None
        head = decode(HEAD_KEY, stored.body, Head)
        return [
            "reconcile" if one.kind == "reconcile" else self.names[one.txn]
            for one in head.commits
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

"""What clients do: read streams query the lake, write streams change it, each act a transaction."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

import lakevilla as lv
from bench.cab_lh.queries import PRICE
from bench.cab_lh.writes import TARGETS, Write
from bench.harness.clients import Counts

_ATTEMPTS = 50
#: As CAB has it, with the price as TPC-H stores it.
_MOVE = (
    f"INSERT INTO orders SELECT o_orderkey + 8, o_custkey, o_orderstatus, {PRICE}, o_orderdate, "
    "o_orderpriority, o_clerk, o_shippriority, o_comment FROM orders "
    "WHERE o_orderkey >= :first AND o_orderkey < :behind"
)
_DELETE = (
    "o_orderkey >= :first AND o_orderkey < :behind "
    "AND o_orderkey % 32 BETWEEN :least_of_32 AND :most_of_32"
)


@dataclass(frozen=True, slots=True)
class Again:
    """How often one transaction of a kind ran again, and its operations were redone."""

    kind: str
    aborts: int
    redos: int


Act = Callable[[lv.Transaction], object]


class Client:
    """A lake, with the redos of each transaction, and its seconds by phase."""

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        self.phases: defaultdict[str, defaultdict[str, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        self.redos: Counter[str] = Counter()
        self.lake = lv.connect(root, storage_options=options, on_event=self._hear)

    def _hear(self, event: lv.Event) -> None:
        if event.kind == "phase":
            own = cast(float, event.detail["own_seconds"])
            self.phases[str(event.txn_id)][str(event.detail["phase"])] += own
        elif event.kind == "redo":
            self.redos[str(event.txn_id)] += 1


@contextmanager
def client(root: str, options: Mapping[str, str]) -> Iterator[Client]:
    """Connected while the block lasts."""
    made = Client(root, options)
    with made.lake:
        yield made


def warm_up(client: Client, counts: Counts) -> Iterator[str]:
    """Open each table once: a stream has been at work for long."""
    yield "read"
    client.lake.sql("SELECT " + ", ".join(f"(SELECT count(*) FROM {name})" for name in TARGETS))


def read(
    queries: Sequence[str], features: lv.Feature, client: Client, counts: Counts
) -> Iterator[str]:
    """A read stream."""
    for query in queries:
        yield "read"
        _run(client, features, counts, "read", [partial(lv.Transaction.sql, query=query)])


def write(
    writes: Sequence[tuple[int, Write]], features: lv.Feature, client: Client, counts: Counts
) -> Iterator[str]:
    """A write stream; it tells the number of each write that was acknowledged."""
    for number, one in writes:
        yield "write"
        acts = _acts(one)
        # Feature.NONE is one write a transaction.
        for together in [acts] if features else [[act] for act in acts]:
            _run(client, features, counts, "write", together)
        counts.facts.append(number)


def _acts(one: Write) -> list[Act]:
    target = TARGETS[one.table]
    keys = {"first": one.keys[0], "behind": one.keys[1]}
    match one.kind:
        case "insert":
            return [lambda txn: txn.append(one.table, one.rows)]
        case "update":
            change = {target.counted: f"{target.counted} + 1"}
            where = f"{target.key} >= :first AND {target.key} < :behind"
            return [lambda txn: txn.update(one.table, change, where, params=keys)]
        case _:
            eight = {"least_of_32": one.eight[0], "most_of_32": one.eight[1]}
            return [
                lambda txn: txn.sql(_MOVE, keys),
                lambda txn: txn.delete("orders", _DELETE, params={**keys, **eight}),
            ]


def _run(
    client: Client, features: lv.Feature, counts: Counts, kind: str, acts: Sequence[Act]
) -> None:
    """One transaction, however often it has to run."""
    ran: list[str] = []

    def once(txn: lv.Transaction) -> None:
        ran.append(txn.id)
        for act in acts:
            act(txn)

    client.lake.run(once, attempts=_ATTEMPTS, features=features)
    redos = 0
    for txn_id in dict.fromkeys(ran):
        for name, seconds in client.phases.pop(txn_id, {}).items():
            counts.spend(kind, name, seconds)
        redos += client.redos.pop(txn_id, 0)
    counts.facts.append(Again(kind, len(ran) - 1, redos))

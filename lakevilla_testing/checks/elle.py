"""Find isolation anomalies in a list-append history.

After Elle (Kingsbury and Alvaro, VLDB 2020), with the names of Adya's thesis. Transactions are
nodes; an edge from one to another says that the first must be before the second:

- ww: the first appended right before the second, to the same key;
- wr: the second read a value that the first appended;
- rw: the first read the list in its state before the second's append;
- rt: the first had ended before the second began (only with ``real_time``).

A cycle means that no serial order explains the history; the kinds of edges in it name the anomaly.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from lakevilla_testing.checks.history import History, Key, ListAppend, Recorded, Txn, Value

try:
    import networkx
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "the history checker needs networkx; install lakevilla[dev], or networkx itself"
    ) from error

EdgeKind = Literal["ww", "wr", "rw", "rt"]
Level = Literal["read-committed", "snapshot", "serializable", "linearizable"]

_NO_CYCLES: dict[Level, frozenset[str]] = {
    "read-committed": frozenset({"G-single", "G-nonadjacent", "G2-item", "lost update"}),
    "snapshot": frozenset({"G2-item"}),
    "serializable": frozenset(),
    "linearizable": frozenset(),
}


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An anomaly, with its transactions.

    ``kind``: ``G0``, ``G1a``, ``G1b``, ``G1c``, ``G-single``, ``G-nonadjacent``, ``G2-item`` (each
    with ``-realtime`` where only real time closes the cycle), ``lost update``, ``lost append``,
    ``duplicate``, ``incompatible order``, ``internal`` or ``unwritten``.
    """

    kind: str
    detail: str
    txns: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


def check(
    history: History | Sequence[Txn],
    *,
    final: Mapping[Key, Sequence[Value]] | None = None,
    real_time: bool = True,
    snapshot: Collection[str] = (),
    unplaced: Mapping[str, Collection[str]] | None = None,
) -> list[Anomaly]:
    """Return all anomalies of a history.

    Parameters
    ----------
    history : History or sequence of Txn
        Transactions in any order.
    final : Mapping, optional
        The lists at the end, read when no request was under way any more. Without
        it the end of each list is known only as far as a transaction read it.
    real_time : bool
        True if a transaction that ended before another began must be first.
    snapshot : collection of str
        Names of transactions with snapshot isolation among transactions with a stronger one. If
        other transactions overwrite what such a transaction has read, that does not concern them,
        so its rw edges are left out (Adya's mixed serialization graph). The guarantee of the
        snapshot transaction itself is checked without naming it, against ``snapshot``.
    unplaced : Mapping, optional
        By the name of a reader, the transactions that it has seen before they had a place in the
        order: they need not be before it. All other transactions that it has seen must be.
    """
    txns = history.txns if isinstance(history, History) else list(history)
    return _Checker(txns, final, real_time, frozenset(snapshot), unplaced or {}).anomalies()


def unpromised(recorded: Recorded) -> list[Anomaly]:
    """Return the anomalies of a history that its clients were promised not to see."""
    final, unplaced = recorded.final, recorded.unplaced
    level: Level = "linearizable" if recorded.real_time else "serializable"
    found = check(
        recorded.txns,
        final=final,
        real_time=recorded.real_time,
        snapshot=recorded.snapshot,
        unplaced=unplaced,
    )
    bad = forbidden(found, level)
    if recorded.snapshot:
        found = check(recorded.txns, final=final, real_time=False, unplaced=unplaced)
        bad += forbidden(found, "snapshot")
    return bad


def forbidden(anomalies: Iterable[Anomaly], level: Level) -> list[Anomaly]:
    """Return the anomalies that an isolation level excludes."""
    allowed = _NO_CYCLES[level]
    return [
        anomaly
        for anomaly in anomalies
        if anomaly.kind.removesuffix("-realtime") not in allowed
        and not (anomaly.kind.endswith("-realtime") and level != "linearizable")
    ]


class _Checker:
    def __init__(
        self,
        txns: Sequence[Txn],
        final: Mapping[Key, Sequence[Value]] | None,
        real_time: bool,
        snapshot: frozenset[str],
        unplaced: Mapping[str, Collection[str]],
    ) -> None:
        self.snapshot = snapshot
        self.unplaced = unplaced
        self.found: list[Anomaly] = []
        self.final = final
        self.real_time = real_time
        self.writer: dict[tuple[Key, Value], Txn] = {}
        for txn in txns:
            for append in txn.appends:
                assert (append.key, append.value) not in self.writer, "values must be unique"
                self.writer[append.key, append.value] = txn
        self.committed = self._committed(txns)
        self.order = self._version_order()
        self.graph: networkx.DiGraph[str] = networkx.DiGraph()

    def anomalies(self) -> list[Anomaly]:
        for txn in self.committed.values():
            self._check_alone(txn)
        self._check_updates()
        self._build()
        self._check_cycles()
        return self.found

    def _report(self, kind: str, detail: str, *txns: str) -> None:
        self.found.append(Anomaly(kind, detail, txns))

    # -------------------------------------------------------- what happened

    def _committed(self, txns: Sequence[Txn]) -> dict[str, Txn]:
        """Return acknowledged transactions, and those of unknown outcome whose values a
        reader saw.
        """
        committed = {txn.name: txn for txn in txns if txn.status == "committed"}
        unknown = {txn.name: txn for txn in txns if txn.status == "unknown"}
        seen = [(key, v) for key, values in (self.final or {}).items() for v in values]
        seen += _values_read(committed.values())
        while seen:
            writer = self.writer.get(seen.pop())
            if writer is not None and writer.name in unknown:
                committed[writer.name] = unknown.pop(writer.name)
                seen += _values_read([writer])
        return committed

    def _version_order(self) -> dict[Key, list[Value]]:
        """Return the longest list that a transaction read of each key; all other lists must be
        prefixes of it.
        """
        lists: dict[Key, list[tuple[str, tuple[Value, ...]]]] = defaultdict(list)
        for txn in self.committed.values():
            own: dict[Key, set[Value]] = defaultdict(set)
            for operation in txn.operations:
                if isinstance(operation, ListAppend):
                    own[operation.key].add(operation.value)
                else:
                    # The values that a transaction has appended itself are checked separately.
                    mine = own[operation.key]
                    others = tuple(v for v in operation.values if v not in mine)
                    lists[operation.key].append((txn.name, others))
        for key, values in (self.final or {}).items():
            lists[key].append(("the end", tuple(values)))
        order: dict[Key, list[Value]] = {}
        for key, seen in lists.items():
            longest = max(seen, key=lambda item: len(item[1]))
            if self.final is not None:
                longest = ("the end", tuple(self.final.get(key, ())))
            order[key] = list(longest[1])
            for name, values in seen:
                if values != longest[1][: len(values)]:
                    self._report(
                        "incompatible order",
                        f"{name} read {key} as {list(values)}, {longest[0]} has {order[key]}",
                        name,
                    )
                self._check_values(name, key, values)
        if self.final is not None:
            self._check_end()
        return order

    def _check_values(self, reader: str, key: Key, values: Sequence[Value]) -> None:
        for value, times in Counter(values).items():
            writer = self.writer.get((key, value))
            if times > 1:
                self._report("duplicate", f"{reader} read {value} {times} times in {key}", reader)
            if writer is None:
                self._report("unwritten", f"{reader} read {value} in {key}", reader)
            elif writer.status == "aborted":
                self._report(
                    "G1a",
                    f"{reader} read {value} in {key}, which {writer.name} took back",
                    writer.name,
                    reader,
                )

    def _check_end(self) -> None:
        assert self.final is not None
        for txn in self.committed.values():
            for append in txn.appends:
                if append.value not in self.final.get(append.key, ()):
                    self._report(
                        "lost append",
                        f"{txn.name} put {append.value} in {append.key}; it is gone",
                        txn.name,
                    )

    # ---------------------------------------------------- one transaction

    def _check_alone(self, txn: Txn) -> None:
        expected: dict[Key, tuple[Value, ...]] = {}
        own: dict[Key, tuple[Value, ...]] = defaultdict(tuple)
        for operation in txn.operations:
            key = operation.key
            if isinstance(operation, ListAppend):
                own[key] += (operation.value,)
                if key in expected:
                    expected[key] += (operation.value,)
                continue
            values = operation.values
            tail = values[len(values) - len(own[key]) :]
            if (key in expected and values != expected[key]) or tail != own[key]:
                self._report(
                    "internal",
                    f"{txn.name} read {key} as {list(values)}, against its own operations before",
                    txn.name,
                )
            expected[key] = values
            self._check_intermediate(txn, key, values[: len(values) - len(own[key])])

    def _check_intermediate(self, txn: Txn, key: Key, values: Sequence[Value]) -> None:
        if not values:
            return
        writer = self.writer.get((key, values[-1]))
        if writer is None or writer is txn:
            return
        last = [append.value for append in writer.appends if append.key == key][-1]
        if last != values[-1]:
            self._report(
                "G1b",
                f"{txn.name} read {key} up to {values[-1]}, in the middle of {writer.name}",
                writer.name,
                txn.name,
            )

    def _check_updates(self) -> None:
        """Report transactions that read the same list and then all appended to it."""
        updaters: dict[tuple[Key, tuple[Value, ...]], list[str]] = defaultdict(list)
        for txn in self.committed.values():
            for key, values in _first_reads(txn).items():
                if any(append.key == key for append in txn.appends):
                    updaters[key, values].append(txn.name)
        for (key, values), names in updaters.items():
            if len(names) > 1:
                self._report(
                    "lost update",
                    f"{', '.join(names)} all read {key} as {list(values)} and appended to it",
                    *names,
                )

    # ------------------------------------------------------- between them

    def _build(self) -> None:
        self.graph.add_nodes_from(self.committed)
        for key, values in self.order.items():
            writers = [self.writer[key, v].name for v in values if (key, v) in self.writer]
            # Appends that no reader has seen are after those seen, in an unknown order.
            for before, after in pairwise(writers):
                self._edge(before, after, "ww")
            unseen = [
                txn.name
                for (k, v), txn in self.writer.items()
                if k == key and v not in values and txn.name in self.committed
            ]
            for after in unseen:
                if writers:
                    self._edge(writers[-1], after, "ww")
            for txn in self.committed.values():
                seen = _first_reads(txn).get(key)
                if seen is None:
                    continue
                unplaced = self.unplaced.get(txn.name, ())
                origins = [self.writer[key, v].name for v in seen if (key, v) in self.writer]
                placed = [name for name in origins if name not in unplaced]
                if placed:
                    self._edge(placed[-1], txn.name, "wr")
                # Take the first value that the list lacks: if the list is no prefix of the order,
                # the check would otherwise miss a skipped write.
                unread = next((v for v in values if v not in seen), None)
                if unread is not None and (key, unread) in self.writer:
                    self._edge(txn.name, self.writer[key, unread].name, "rw")
                elif unread is None:
                    for after in unseen:
                        self._edge(txn.name, after, "rw")
        if self.real_time:
            self._add_real_time()

    def _add_real_time(self) -> None:
        txns = sorted(self.committed.values(), key=lambda txn: txn.invoked)
        for later in txns:
            for earlier in txns:
                if earlier.completed is not None and earlier.completed < later.invoked:
                    self._edge(earlier.name, later.name, "rt")

    def _edge(self, before: str, after: str, kind: EdgeKind) -> None:
        if before == after or not {before, after} <= self.committed.keys():
            return
        if kind == "rw" and before in self.snapshot:
            return
        if not self.graph.has_edge(before, after):
            self.graph.add_edge(before, after, kinds=set())
        self.graph[before][after]["kinds"].add(kind)

    def _check_cycles(self) -> None:
        if networkx.is_directed_acyclic_graph(self.graph):
            return
        for nodes in networkx.strongly_connected_components(self.graph):
            if len(nodes) > 1:
                self._name_cycles(sorted(nodes))

    def _name_cycles(self, nodes: list[str]) -> None:
        """Report the strongest anomalies of a component: each kind once, weaker ones never."""
        for suffix, extra in (("", set[str]()), ("-realtime", {"rt"})):
            if suffix and not self.real_time:
                break
            for kind, first, others, rw in (
                ("G0", {"ww"}, {"ww"}, "none"),
                ("G1c", {"wr"}, {"ww", "wr"}, "none"),
                ("G-single", {"rw"}, {"ww", "wr"}, "none"),
                ("G-nonadjacent", {"rw"}, {"ww", "wr"}, "apart"),
                ("G2-item", {"rw"}, {"ww", "wr"}, "any"),
            ):
                cycle = self._cycle(nodes, first, others | extra, rw)
                if cycle is not None:
                    self._report(kind + suffix, self._described(cycle), *cycle[:-1])
                    if kind != "G0":  # dirty writes and dirty reads are worth distinguishing
                        return

    def _cycle(
        self, nodes: list[str], first: set[str], others: set[str], rw: str
    ) -> list[str] | None:
        """Return a shortest cycle: one edge of a kind in ``first``, then edges of ``others``.

        ``rw``: whether further rw edges may follow: ``none``, only ``apart`` from each other, or
        ``any``.
        """
        inside = set(nodes)
        best: list[str] | None = None
        for start in nodes:
            for second in sorted(self.graph[start]):
                if second in inside and self.graph[start][second]["kinds"] & first:
                    path = self._path(second, start, inside, others, rw)
                    if path is not None and (best is None or len(path) < len(best) - 1):
                        best = [start, *path]
        return best

    def _path(
        self, start: str, goal: str, inside: set[str], others: set[str], rw: str
    ) -> list[str] | None:
        # A state is (node, whether the edge into it was rw); the first edge was rw if ``rw``
        # matters.
        begin = (start, rw == "apart")
        previous: dict[tuple[str, bool], tuple[str, bool] | None] = {begin: None}
        queue = deque([begin])
        while queue:
            state = queue.popleft()
            node, was_rw = state
            if node == goal and not was_rw:
                path = []
                step: tuple[str, bool] | None = state
                while step is not None:
                    path.append(step[0])
                    step = previous[step]
                return path[::-1]
            for after in sorted(self.graph[node]):
                if after not in inside:
                    continue
                kinds = self.graph[node][after]["kinds"]
                steps = []
                if kinds & others or (rw == "any" and "rw" in kinds):
                    steps.append((after, False))
                if rw == "apart" and "rw" in kinds and not was_rw:
                    steps.append((after, True))
                for following in steps:
                    if following not in previous:
                        previous[following] = state
                        queue.append(following)
        return None

    def _described(self, cycle: list[str]) -> str:
        text = cycle[0]
        for before, after in pairwise(cycle):
            text += f" -{'/'.join(sorted(self.graph[before][after]['kinds']))}-> {after}"
        return text


def _values_read(txns: Iterable[Txn]) -> list[tuple[Key, Value]]:
    return [(read.key, value) for txn in txns for read in txn.reads for value in read.values]


def _first_reads(txn: Txn) -> dict[Key, tuple[Value, ...]]:
    """Return, by key, the foreign values that a transaction saw: its first read, less its own
    appends.
    """
    own: set[tuple[Key, Value]] = set()
    first: dict[Key, tuple[Value, ...]] = {}
    for operation in txn.operations:
        if isinstance(operation, ListAppend):
            own.add((operation.key, operation.value))
        elif operation.key not in first:
            first[operation.key] = tuple(
                v for v in operation.values if (operation.key, v) not in own
            )
    return first

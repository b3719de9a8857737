"""Histories that are known to be bad: one for each anomaly, and some like those of other systems.

They show that a checker finds something: ours, and other people's (``lakevilla_testing.outside``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakevilla_testing.checks.history import Key, Recorded, Status, Txn, Value


@dataclass(frozen=True, slots=True)
class Bad:
    """A history with its lists at the end, the kind of its anomaly, and a link to a report."""

    kind: str
    txns: Sequence[Txn]
    final: Mapping[Key, Sequence[Value]]
    link: str = ""

    @property
    def recorded(self) -> Recorded:
        return Recorded(self.txns, self.final)


def txn(
    name: str,
    *operations: tuple[Key, Value | Sequence[Value]],
    status: Status = "committed",
    at: float = 0.0,
    until: float | None = 100.0,
) -> Txn:
    """Return a transaction; an operation with a number appends, one with a list has read it."""
    made = Txn(name, name, at, status=status, completed=until)
    for key, what in operations:
        if isinstance(what, int):
            made.append(key, what)
        else:
            made.read(key, what)
    return made


_ANOMALIES: dict[str, tuple[list[Txn], dict[Key, list[Value]]]] = {
    "G0": (
        [txn("A", ("x", 1), ("y", 3)), txn("B", ("x", 2), ("y", 4))],
        {"x": [1, 2], "y": [4, 3]},
    ),
    "G1a": ([txn("A", ("x", 1), status="aborted"), txn("B", ("x", [1]))], {"x": []}),
    "G1b": ([txn("A", ("x", 1), ("x", 2)), txn("B", ("x", [1]))], {"x": [1, 2]}),
    "G1c": (
        [txn("A", ("x", 1), ("y", [2])), txn("B", ("y", 2), ("x", [1]))],
        {"x": [1], "y": [2]},
    ),
    "G-single": (
        [txn("A", ("x", 1), ("y", 2)), txn("B", ("x", [1]), ("y", []))],
        {"x": [1], "y": [2]},
    ),
    "G-nonadjacent": (
        [
            txn("A", ("x", 1)),
            txn("B", ("y", 2)),
            txn("C", ("x", [1]), ("y", [])),
            txn("D", ("y", [2]), ("x", [])),
        ],
        {"x": [1], "y": [2]},
    ),
    "G2-item": (
        [txn("A", ("x", []), ("y", 1)), txn("B", ("y", []), ("x", 2))],
        {"x": [2], "y": [1]},
    ),
    "lost update": (
        [txn("A", ("x", []), ("x", 1)), txn("B", ("x", []), ("x", 2))],
        {"x": [1, 2]},
    ),
    "lost append": ([txn("A", ("x", 1)), txn("B", ("y", 2))], {"x": [], "y": [2]}),
    "G0-realtime": (
        [txn("A", ("x", 1), at=0, until=1), txn("B", ("x", 2), at=2, until=3)],
        {"x": [2, 1]},
    ),
    "G1c-realtime": (
        [txn("A", ("x", [1]), at=0, until=1), txn("B", ("x", 1), at=2, until=3)],
        {"x": [1]},
    ),
    "G-single-realtime": (
        [txn("A", ("x", 1), at=0, until=1), txn("B", ("x", []), at=2, until=3)],
        {"x": [1]},
    ),
    # C, D, A, B would be a valid order, had B not ended before C began.
    "G-nonadjacent-realtime": (
        [
            txn("A", ("x", []), ("z", 2), at=0, until=9),
            txn("B", ("x", 1), at=0, until=1),
            txn("C", ("y", []), at=2, until=3),
            txn("D", ("y", 3), ("z", 1), at=0, until=9),
        ],
        {"x": [1], "y": [3], "z": [1, 2]},
    ),
    "G2-item-realtime": (
        [
            txn("A", ("x", []), at=2, until=3),
            txn("B", ("x", 1), ("y", []), at=0, until=9),
            txn("C", ("y", 2), at=0, until=1),
        ],
        {"x": [1], "y": [2]},
    ),
    # Adya's phantom, where a list has what a predicate finds: A asks for the rows of a group, B
    # adds one and counts them again, and A finds that count.
    "G2": (
        [
            txn("setup", ("rows of sales", 1), ("sum of sales", 2)),
            txn("A", ("rows of sales", [1]), ("sum of sales", [2, 4])),
            txn("B", ("rows of sales", 3), ("sum of sales", [2]), ("sum of sales", 4)),
        ],
        {"rows of sales": [1, 3], "sum of sales": [2, 4]},
    ),
}
#: What lists show of an anomaly of predicates.
_OF_PREDICATES = {"G2": "G-single"}
#: Adya's anomalies and those of real time, by name.
ANOMALIES = {name: Bad(_OF_PREDICATES.get(name, name), *bad) for name, bad in _ANOMALIES.items()}

#: Like what users have reported of other systems: of our own making, after the reports.
REPORTS = {
    # An insert into an empty table takes no notice of rows that others have inserted meanwhile.
    "duckdb-iceberg 631": Bad(
        "lost append",
        [
            txn("insert", ("table", []), ("table", 2), at=0, until=5),
            txn("concurrent insert", ("table", 1), at=1, until=2),
            txn("reader", ("table", [1]), at=3, until=4),
        ],
        {"table": [2]},
        "https://github.com/duckdb/duckdb-iceberg/issues/631",
    ),
    # A delete of a row whose file was compacted meanwhile, by snapshots that are expired at its
    # commit: it succeeds, and the row is there.
    "ducklake 1472": Bad(
        "lost append",
        [
            txn("insert", ("rows", 1), at=0, until=1),
            txn("delete", ("rows", [1]), ("deleted rows", 3), at=2, until=9),
            txn("another insert", ("rows", 2), at=3, until=4),
            txn("reader", ("rows", [1, 2]), ("deleted rows", []), at=10, until=11),
        ],
        {"rows": [1, 2], "deleted rows": []},
        "https://github.com/duckdb/ducklake/issues/1472",
    ),
    # A commit that is retried after a lost race names the files of its first attempt alone.
    "iceberg-go 976": Bad(
        "lost append",
        [
            txn("first", ("table", 1), at=0, until=2),
            txn("retried", ("table", 2), at=1, until=4),
            txn("reader", ("table", [2]), at=5, until=6),
        ],
        {"table": [2]},
        "https://github.com/apache/iceberg-go/issues/976",
    ),
    # Two clients replace the same rows, and the second one has not seen what the first has written.
    "delta-rs 3622": Bad(
        "lost update",
        [
            txn("create", ("partition a", 1), at=0, until=1),
            txn("first overwrite", ("partition a", [1]), ("partition a", 2), at=2, until=5),
            txn("second overwrite", ("partition a", [1]), ("partition a", 3), at=3, until=6),
        ],
        {"partition a": [1, 2, 3]},
        "https://github.com/delta-io/delta-rs/issues/3622",
    ),
}
KNOWN_BAD = {**ANOMALIES, **REPORTS}

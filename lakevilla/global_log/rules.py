"""Rules by which a transaction conflicts with commits that were made before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.formats.layout import Layout, as_of
from lakevilla.formats.pruning import may_match
from lakevilla.global_log.summaries import Added, statistics_text
from lakevilla.sql.expressions.tree import Expr

# -------------------- rules
#
# R1, R2 and R3: the paper's rules of validation, by version numbers alone (module #4.2).
#
# All functions are pure. A transaction is compatible with the lake's newest version of a table if
# no rule fires: then no commit to the table came between. The numbers say nothing about rows, so if
# a rule fires, the client compares files and rows (``validation="precise"``), or the transaction is
# in conflict (``"rules"``).
#
# The paper prints R3 as "log version + written logs != write version - written logs". Its text says
# that the table's version in the log plus the number of written entries is the version to write;
# the code here follows the text.


Isolation = Literal["serializable", "snapshot", "write-serializable"]
Validation = Literal["precise", "rules"]


class Rule(Enum):
    """One of the paper's rules; the value is its meaning."""

    R1 = "outdated read"
    R2 = "number taken"
    R3 = "lost update"


@dataclass(frozen=True, slots=True)
class Versions:
    """One table's versions at validation, as the paper distinguishes them.

    Attributes
    ----------
    read : int
        The version that the transaction works on, including foreign commits laid over it.
    hidden : int
        The newest version known at validation: HEAD's, plus the further entries of the table's
        log.
    log : int or None
        The table's version in HEAD at validation; None if HEAD does not have the table.
    write : int
        The version that the transaction's entry takes.
    written : int
        Number of versions by which the transaction raises the table's version in HEAD: its own
        entry, and the foreign entries that it absorbs.
    """

    read: int
    hidden: int
    log: int | None
    write: int
    written: int


def r1_outdated_read(read: int, hidden: int, slack: int = 0) -> bool:
    """Return whether R1 fires (r < h - s): the read version is more than ``slack`` versions old."""
    return read < hidden - slack


def r2_number_taken(write: int, hidden: int) -> bool:
    """Return whether R2 fires (w <= h): another commit has taken the version to write."""
    return write <= hidden


def r3_lost_update(log: int, write: int, written: int) -> bool:
    """Return whether R3 fires (g != w - k): the write would ignore an earlier change."""
    return log != write - written


def fires(
    versions: Versions,
    *,
    reads: bool,
    writes: bool,
    isolation: Isolation = "serializable",
    slack: int = 0,
) -> Rule | None:
    """Return the first rule that fires on a table; None if the transaction is compatible.

    ``reads`` and ``writes``: whether the table is in the transaction's read set, and in its write
    set. A table that only gets a blind append is in neither: the append takes the next version. A
    table that an update changes is in both, and is checked against all three rules. Snapshot
    isolation checks no read. R3 is not checked for a table that HEAD does not have.
    """
    must_hold = reads and isolation != "snapshot"
    if must_hold and r1_outdated_read(versions.read, versions.hidden, slack):
        return Rule.R1
    if not writes:
        return None
    if r2_number_taken(versions.write, versions.hidden):
        return Rule.R2
    if versions.log is not None and r3_lost_update(versions.log, versions.write, versions.written):
        return Rule.R3
    return None


# -------------------- overlap
#
# The check whether files that were added to a table may hold rows that a caller has queried.
#
# The check uses only partition values and statistics from the log or HEAD: a "no" is certain; a
# missing statistic makes the result "maybe".


#: The known facts of an added file: its partition values and statistics, as in the log.
Known = tuple[dict[str, str | None], str | None]


def known_of(added: Added) -> Known:
    """Return the partition values and statistics of a file in a summary."""
    return added.partition_values, statistics_text(added)


def may_hold(layout: Layout, predicates: Sequence[Expr | None], added: Iterable[Known]) -> bool:
    """Return whether one of the files may hold a queried row; a predicate None means all rows."""
    files = list(added)
    if not files or not predicates:
        return False
    bound = [as_of(where, layout) for where in predicates]
    if None in bound:
        return True
    values = [list(partition_values.items()) for partition_values, _ in files]
    table = pa.table(
        {
            "partition_values": pa.array(values, pa.map_(pa.string(), pa.string())),
            "stats": pa.array([stats for _, stats in files], pa.string()),
        }
    )
    return any(
        pc.any(may_match(table, layout, where)).as_py() for where in bound if where is not None
    )

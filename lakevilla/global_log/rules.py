"""Rules by which commits overlap."""

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
# Pure. A transaction is compatible with the lake's newest version on a table if no
# rule fires. The numbers say nothing about rows, so a rule that fires is a reason
# to look closer (``validation="precise"``), or to give up (``"rules"``). One that does
# not fire needs no look: nothing came between.
#
# The paper prints R3 as "log version + written logs != write version - written logs";
# what it explains is that the table's version in the log and the number of entries
# written make the version to write, which is what stands here.


Isolation = Literal["serializable", "snapshot", "write-serializable"]
Validation = Literal["precise", "rules"]


class Rule(Enum):
    """A rule that fires, by the paper's name and what it means."""

    R1 = "outdated read"
    R2 = "number taken"
    R3 = "lost update"


@dataclass(frozen=True, slots=True)
class Versions:
    """One table's versions at validation, as the paper tells them apart.

    Attributes
    ----------
    read : int
        The version that the transaction works on, foreign commits laid over included.
    hidden : int
        The newest version known at validation, HEAD's and what the log has besides.
    log : int or None
        The version in the global version log at validation; None: not in it.
    write : int
        The version that the transaction's entry takes.
    written : int
        Entries that it brings to the global version log: its own, and the foreign
        ones that it laid over and absorbs.
    """

    read: int
    hidden: int
    log: int | None
    write: int
    written: int


def r1_outdated_read(read: int, hidden: int, slack: int = 0) -> bool:
    """R1, r < h - s: what was read is more than ``slack`` versions behind."""
    return read < hidden - slack


def r2_number_taken(write: int, hidden: int) -> bool:
    """R2, w <= h: another commit has the number by now."""
    return write <= hidden


def r3_lost_update(log: int, write: int, written: int) -> bool:
    """R3, g != w - k: what is to be written ignores a change that came before."""
    return log != write - written


def fires(
    versions: Versions,
    *,
    reads: bool,
    writes: bool,
    isolation: Isolation = "serializable",
    slack: int = 0,
) -> Rule | None:
    """The first rule that fires on a table; None: compatible.

    ``reads`` and ``writes``: whether the table is in the transaction's read set, and in
    its write set. A table that is only appended to blindly is in neither: the
    append takes the next number. An update is in both, and is held against all
    three. Snapshot isolation holds no read against anything. A table that the
    global version log lacks has no version there to differ from.
    """
    held = reads and isolation != "snapshot"
    if held and r1_outdated_read(versions.read, versions.hidden, slack):
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
# Whether files that came to a table may hold rows that somebody has asked for.
#
# By partition values and statistics alone, as the log or HEAD tells them: "no" is sure, and what
# is not known is a "maybe".


#: What is known of an added file: its partition values and statistics, as in the log.
Known = tuple[dict[str, str | None], str | None]


def known_of(added: Added) -> Known:
    """What a summary tells of a file."""
    return added.partition_values, statistics_text(added)


def may_hold(layout: Layout, asked: Sequence[Expr | None], added: Iterable[Known]) -> bool:
    """Whether one of the files may hold a row that was asked for; None asks for all rows."""
    files = list(added)
    if not files or not asked:
        return False
    here = [as_of(where, layout) for where in asked]
    if None in here:
        return True
    values = [list(partition_values.items()) for partition_values, _ in files]
    table = pa.table(
        {
            "partition_values": pa.array(values, pa.map_(pa.string(), pa.string())),
            "stats": pa.array([stats for _, stats in files], pa.string()),
        }
    )
    return any(
        pc.any(may_match(table, layout, where)).as_py() for where in here if where is not None
    )

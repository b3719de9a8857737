"""R1, R2 and R3: the paper's rules of validation, by version numbers alone (module #4.2).

Pure. A transaction is compatible with the lake's newest version on a table if no
rule fires. The numbers say nothing about rows, so a rule that fires is a reason
to look closer (``validation="precise"``), or to give up (``"rules"``). One that does
not fire needs no look: nothing came between.

The paper prints R3 as "log version + written logs != write version - written logs";
what it explains is that the table's version in the log and the number of entries
written make the version to write, which is what stands here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

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

"""What one state of a table has other than another: files, and what the table is defined as."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.files import DataFile, data_files
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Defined


@dataclass(frozen=True, slots=True)
class Difference:
    """``after`` is None where the table is defined alike in both states."""

    removes: tuple[DataFile, ...]
    adds: tuple[DataFile, ...]
    before: Defined
    after: Defined | None

    @property
    def is_empty(self) -> bool:
        return not (self.removes or self.adds) and self.after is None


def difference(before: TableSnapshot, after: TableSnapshot) -> Program[Difference]:
    """What came to a table, and what went, from one of its states to another."""
    was = yield from before.files()
    now = yield from after.files()
    old = Defined(dict(before.metadata), dict(before.protocol))
    new = Defined(dict(after.metadata), dict(after.protocol))
    return Difference(
        tuple(data_files(_apart(was, now))),
        tuple(data_files(_apart(now, was))),
        old,
        None if old == new else new,
    )


def _apart(files: pa.Table, others: pa.Table) -> pa.Table:
    """The files that are not among the others, by path and deletes."""
    known = _identities(others)
    return files.filter(pc.invert(pc.is_in(_identities(files), value_set=known)))


def _identities(files: pa.Table) -> pa.ChunkedArray:
    # No path holds this character; a file without deletes is another than one whose id is empty.
    deletes = pc.if_else(
        pc.is_null(files["dv_id"]), "", pc.binary_join_element_wise("\0", files["dv_id"], "")
    )
    return pc.binary_join_element_wise(files["path"], deletes, "")

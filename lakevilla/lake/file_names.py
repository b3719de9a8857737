"""The names of data files: whose they are, and by which kind of commit point."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakevilla.clock import SystemClock
from lakevilla.engines.base import FileNamer
from lakevilla.ids import Ids
from lakevilla.lake.context import Context

#: An engine that writes into a local lake may leave its temporary ``tmp_`` name.
#: Iceberg's manifests and manifest lists are stored by whoever publishes them.
_OWN = re.compile(
    r"(?:.*/)?(?:tmp_|snap-\d+-)?lv-([hl])-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[0-9a-f]+"
    r"(?:\.parquet|(?:-m\d+)?\.avro)"
)

#: Below the table, so that its log can name them relatively once they are merged, and where the
#: clean-up of Spark and deltalake does not look.
_BRANCH_FILES = "_lakevilla/b"
_OF_BRANCH = re.compile(rf"{_BRANCH_FILES}/(\d{{20}}-[0-9a-f]{{16}})/")


def file_path(partition: str, txn: str, through_head: bool, nonce: str) -> str:
    """A data file's path: its name says whose it is, and by which kind of commit point.

    Files of transactions that commit by their own log entry can't be fenced,
    so nobody but VACUUM ever deletes those.
    """
    kind = "h" if through_head else "l"
    name = f"lv-{kind}-{txn}-{nonce}.parquet"
    return f"{partition}/{name}" if partition else name


def branch_directory(location: str, life: str) -> str:
    """Where the files of a table lie that were written on a branch."""
    return f"{location}/{_BRANCH_FILES}/{life}"


def branch_of(path: str) -> str | None:
    """The life that a data file was written for, by its path in the table; None if none."""
    found = _OF_BRANCH.match(path)
    return None if found is None else found[1]


def owner_of(path: str) -> tuple[str, str] | None:
    """Whose file it is by its name: "h" (through HEAD) or "l" (by log entry), and the id."""
    found = _OWN.fullmatch(path)
    return None if found is None else (found[1], found[2])


def file_namer(context: Context, txn: str, through_head: bool) -> FileNamer:
    return _Namer(context.ids, txn, through_head, context.life)


@dataclass(frozen=True, slots=True)
class _Namer:
    ids: Ids
    txn: str
    through_head: bool
    life: str

    def __call__(self, partition: str) -> str:
        if self.life:
            # With its partition's directories: there are readers that take values from paths.
            partition = f"{_BRANCH_FILES}/{self.life}/{partition}".rstrip("/")
        return file_path(partition, self.txn, self.through_head, self.ids.nonce()[:16])

    def __reduce__(self) -> tuple[object, ...]:
        # In another process it draws from that one's randomness: each attempt of a task
        # has names of its own, so none writes over another's file.
        return _namer, (self.txn, self.through_head, self.life)


def _namer(txn: str, through_head: bool, life: str) -> _Namer:
    return _Namer(Ids(SystemClock()), txn, through_head, life)

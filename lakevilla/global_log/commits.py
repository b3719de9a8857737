"""Commit objects: all that a transaction commits, immutable and without a parent.

A commit object names no HEAD, so it stays valid after a lost race for HEAD. Its key has a hash of
its body: a redo makes a new object, and HEAD names the one that counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Literal

import msgspec
from blake3 import blake3

from lakevilla.errors import CorruptObject
from lakevilla.formats.base import Change
from lakevilla.sql.catalog import CatalogRead
from lakevilla.store.codec import (
    FORMAT,
    FORMAT_WITH_GIVEN,
    FORMAT_WITH_MEMBERS,
    FORMAT_WITH_NEEDS,
    decode,
    encode,
)
from lakevilla.store.location import home_of
from lakevilla.sublogs.operations import Given, Operation, ReadRecord

COMMITS_PREFIX = "_lakevilla/commits"


class TablePart(msgspec.Struct, frozen=True, omit_defaults=True):
    """The change that a commit makes to one table.

    ``blind``: nothing of the table was read. ``created`` and ``dropped``: the commit adds the table
    to the lake, or removes it. ``operation``, ``parameters`` and ``metrics`` are for the log
    entry's ``commitInfo``. ``contract`` is the digest of what the table required of data files when
    the commit's files were made, after the commit's own changes of the table (note 3). It is empty
    if an older client decided the commit. ``redefines``: rows that other clients write before the
    commit is published may violate the new definition of the table. ``given``: an Iceberg
    client has made the version, which follows no version but its base; or, if it is ``files``, of
    which the files can follow other versions, too. ``objects`` are the paths of what else that
    version names and the client has stored (docs/design/0073-given-commits.md).
    """

    table_id: str
    change: Change
    blind: bool = False
    created: bool = False
    dropped: bool = False
    operation: str = "WRITE"
    parameters: dict[str, str] = {}
    metrics: dict[str, str] = {}
    contract: str = ""
    redefines: bool = False
    given: Literal["", "version", "files"] = ""
    objects: tuple[str, ...] = ()


class MemberPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """One member of a combined commit, with the counts of each of its operations.

    The operations of a commit are those of its members, one member after the other. ``counts`` are
    the rows matched, inserted, updated and deleted, and the files added and removed.
    """

    txn: str
    counts: tuple[tuple[int, int, int, int, int, int], ...]


class CommitObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """``_lakevilla/commits/<txn>-<hash>.json``.

    ``after``: the newest commit of the HEAD that the maker of this object had read. If a client
    finds a HEAD with fewer commits, HEAD was set back (docs/design/0053-gone-back.md). ``after`` is
    no parent: the commit can follow any HEAD that it fits. ``merged``: the branch that the commit
    merges, and the version of the branch (``etl@57``). ``catalog``: the part of the lake's catalog
    that the caller had seen. ``replaces``, ``voided``, ``touched_reads`` and ``quiet`` belong to a
    ``reconcile`` commit. ``replaces``: the commits that it replaces (sequence, txn, hash).
    ``voided``: the commits that could not be performed again, and the reasons. ``touched_reads``:
    transactions that had read rows which the foreign change touched. ``quiet``: the foreign change
    only moved rows. ``members``: the transactions that a combined commit performs, in their order
    (docs/design/0068-combined-commits.md). ``needs``: what a client must know to read the commit
    (docs/design/0087-versions-side-by-side.md).
    """

    FORMAT = FORMAT_WITH_NEEDS

    format: int
    nonce: str
    txn: str
    tables: dict[str, TablePart]
    operations: tuple[Operation, ...] = ()
    reads: tuple[ReadRecord, ...] = ()
    metadata: dict[str, str] = {}
    applications: dict[str, int] = {}
    started_ms: int = 0
    replaces: tuple[tuple[int, str, str], ...] = ()
    voided: tuple[tuple[str, str], ...] = ()
    touched_reads: tuple[str, ...] = ()
    quiet: bool = False
    merged: str = ""
    catalog: tuple[CatalogRead, ...] = ()
    after: int = 0
    members: tuple[MemberPart, ...] = ()
    needs: tuple[str, ...] = ()

    def by_member(self) -> Iterator[tuple[str, tuple[Operation, ...]]]:
        """Yield each transaction of the commit with its operations, in their order."""
        if not self.members:
            yield self.txn, self.operations
        start = 0
        for member in self.members:
            end = start + len(member.counts)
            yield member.txn, self.operations[start:end]
            start = end


def format_of(
    parts: Iterable[TablePart], members: Sized = (), operations: Iterable[Operation] = ()
) -> int:
    """Return the format of a commit object with these parts, the oldest that has all of them."""
    oldest = FORMAT_WITH_MEMBERS if members else FORMAT
    if any(isinstance(one, Given) for one in operations):
        oldest = FORMAT_WITH_GIVEN
    return max([oldest, *(part.change.format for part in parts)])


def commit_key(txn: str, digest: str, epoch: str = "") -> str:
    """Return a commit object's key; ``epoch``: that of the branch it was made on, or ``""``."""
    return f"{home_of(epoch)}/commits/{txn}-{digest}.json"


def seal(commit: CommitObject) -> tuple[str, bytes]:
    """Return the hash and the body of a commit object."""
    body = encode(commit)
    return digest_of(body), body


def read_commit(key: str, body: bytes) -> CommitObject:
    """Decode a commit object, and compare its hash with the one in its key."""
    commit = decode(key, body, CommitObject)
    if not key.endswith(f"/commits/{commit.txn}-{digest_of(body)}.json"):
        raise CorruptObject(
            f"{key} does not hold the bytes that its name is the hash of: restore it from a copy, "
            "or run `lakevilla doctor`",
            key=key,
        )
    return commit


def digest_of(body: bytes) -> str:
    """Return the hash of an immutable object's body, which is part of the object's name."""
    return blake3(body).hexdigest(length=16)

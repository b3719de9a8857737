"""Proposals of commits and of operations, and the inbox that stores them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from lakevilla.errors import CorruptObject, UnsupportedFormat
from lakevilla.formats.base import FormatName
from lakevilla.global_log.commits import CommitObject, commit_key, digest_of, read_commit
from lakevilla.global_log.head import Head, Touch
from lakevilla.global_log.inbox.reliance import Reliance
from lakevilla.store.base import ABSENT, Found, ObjectInfo, PutOutcome
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import Program, delete, get, list_objects, parallel, put
from lakevilla.sublogs.operations import Operation

# -------------------- proposal
#
# Proposals: commits that the next client to replace HEAD may include (docs/design/0029-inbox.md).
#
# A proposal contains commits that any client may include in HEAD while HEAD's number is below
# ``replacement + WINDOW``. The owner can't withdraw a proposal: it ends only when HEAD's number
# passes the window, or HEAD fences the transaction. A proposal is created once and never changed,
# and its name has the hash of its content, so that damage is recognized.


INBOX_PREFIX = "_lakevilla/inbox"
#: The format version of a proposal with a commit that relies on rows. A client that does not know
#: of reliances must not treat such a commit as one that only adds rows.
FORMAT_RELYING = 2
#: The format version of a proposal with intents: a client that does not know them must not take it
#: for one without.
FORMAT_WITH_INTENTS = 3
#: Number of replacements of HEAD for which a proposal may be included.
WINDOW = 4
#: The most commits in one proposal, which are those of one process that wait at the same time.
MOST_COMMITS = 32
#: Size limit of a commit object: a larger one is not stored twice; its owner replaces HEAD itself.
MOST_COMMIT_BYTES = 64 * 1024
#: Size limit of a proposal: this library writes no larger ones, and no client reads them.
MOST_BYTES = MOST_COMMITS * (MOST_COMMIT_BYTES + 16 * 1024)


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """The log of one table that a commit writes, in the state that the commit's owner has found.

    From ``published`` of the HEAD that the proposal names up to ``logged``, the log holds only
    commits of this lake; the last of them has the sequence ``upto``. ``touch`` is the ``Touch`` of
    the commit for HEAD's list, except for its ``published``. ``alone``: each commit to the table
    is published as a log entry of its own.
    """

    table_id: str
    format: FormatName
    logged: int
    upto: int
    touch: Touch
    alone: bool = False


class ProposedCommit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One transaction, ready to be in HEAD: ``commit`` is a copy of its stored commit object.

    ``tables`` has the tables that it writes, ``relies`` those whose rows it has read or whose files
    it removes.
    """

    txn: str
    digest: str
    commit: msgspec.Raw
    tables: dict[str, Claim]
    relies: dict[str, Reliance] = {}

    def commit_object(self) -> CommitObject:
        """Return the commit object.

        Raises
        ------
        CorruptObject
            The copy is not the commit object that ``txn`` and ``digest`` name.
        UnsupportedFormat
            A newer LakeVilla wrote it.
        """
        return read_commit(commit_key(self.txn, self.digest), bytes(self.commit))


class IntendedTable(msgspec.Struct, frozen=True):
    """A table as an intent's owner has found it: its id, and what it requires of rows.

    ``contract`` is the digest that a ``TablePart`` has.
    """

    table_id: str
    contract: str


class Intent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One transaction of which nobody has seen a result: what it is to do, not yet performed.

    A client that leads performs ``operations`` as a member of its combined commit
    (docs/design/0070-operations-in-the-inbox.md). ``tables`` are all tables that they name.
    """

    txn: str
    operations: tuple[Operation, ...]
    tables: dict[str, IntendedTable]


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True):
    """``_lakevilla/inbox/<replacement>-<hash>.json``.

    ``replacement`` and ``sequence`` are those of the newest HEAD that the owner had read; each of
    ``commits`` was validated against that HEAD, and none of ``intents`` was in it. The commits are
    in the order in which their owner would commit them.
    """

    REMEDY: ClassVar[str] = "delete it: no transaction relies on it any more"
    FORMAT: ClassVar[int] = FORMAT_WITH_INTENTS

    format: int
    nonce: str
    lake_id: str
    replacement: int
    sequence: int
    commits: tuple[ProposedCommit, ...] = ()
    intents: tuple[Intent, ...] = ()

    @property
    def last_replaced(self) -> int:
        """The number of the last HEAD that may be replaced by one with these commits."""
        return self.replacement + WINDOW - 1


def format_of(commits: Iterable[ProposedCommit]) -> int:
    """Return the format version of a proposal: the oldest that can express all these commits."""
    return FORMAT_RELYING if any(one.relies for one in commits) else FORMAT


def seal_proposal(proposal: Proposal) -> tuple[str, bytes]:
    """Return the proposal's key and body."""
    body = encode(proposal)
    return f"{INBOX_PREFIX}/{proposal.replacement:020}-{digest_of(body)}.json", body


def read_proposal(key: str, body: bytes) -> Proposal:
    """Decode a proposal.

    Raises
    ------
    CorruptObject
        The proposal is damaged, is too large, or does not match its name.
    UnsupportedFormat
        A newer LakeVilla wrote it.
    """
    if len(body) > MOST_BYTES:
        raise _unsound(key, f"has {len(body)} bytes, more than any proposal may have")
    proposal = decode(key, body, Proposal)
    if number_of(key) != proposal.replacement or not key.endswith(f"-{digest_of(body)}.json"):
        raise _unsound(key, "does not hold the bytes that its name is the hash of")
    count = len(proposal.commits) + len(proposal.intents)
    if not 0 < count <= MOST_COMMITS:
        raise _unsound(key, f"has {count} commits, not 1 to {MOST_COMMITS}")
    return proposal


def number_of(key: str) -> int | None:
    """Return HEAD's number in the name of a proposal; None if the key is not a proposal's."""
    name = key.removeprefix(f"{INBOX_PREFIX}/")
    number, dash, rest = name.partition("-")
    is_named = dash and rest.endswith(".json") and "/" not in rest
    return int(number) if is_named and len(number) == 20 and number.isdecimal() else None


def oldest_key(number: int) -> str:
    """Return a key before those of all proposals that may follow the HEAD with that number."""
    return f"{INBOX_PREFIX}/{max(number - WINDOW + 1, 0):020}"


def is_over(replacement: int, head: Head) -> bool:
    """Return whether no HEAD after ``head`` can include a proposal made at that number."""
    return head.replacement >= replacement + WINDOW


def _unsound(key: str, why: str) -> CorruptObject:
    return CorruptObject(f"{key} {why}; {Proposal.REMEDY}", key=key)


# -------------------- box
#
# The inbox in the store: clients store, list, read and delete proposals there.


#: The most proposals read for one replacement of HEAD: as many as it may have commits.
_MOST_READ = 64


def propose(key: str, body: bytes) -> Program[PutOutcome]:
    """Store a proposal in the inbox. Any client may include it from now on, even after an error."""
    return (yield from put(key, body, ABSENT))


def list_proposals(number: int) -> Program[list[str]]:
    """Return the keys of proposals that may be included at this number of HEAD or a later one."""
    infos = yield from list_objects(INBOX_PREFIX, oldest_key(number))
    return [info.key for info in infos if _may_be_read(info)]


def _may_be_read(info: ObjectInfo) -> bool:
    return number_of(info.key) is not None and info.size <= MOST_BYTES


def read_proposals(
    head: Head, keys: Iterable[str], known: Mapping[str, Proposal | None]
) -> Program[dict[str, Proposal | None]]:
    """Return the proposals that may be in the HEAD that follows ``head``; None for unreadable ones.

    A proposal that is damaged, or of an unknown format, is left to its owner, which replaces HEAD
    itself. ``known`` are the proposals that were read before.
    """
    wanted = [key for key in keys if _fits(head, key)][:_MOST_READ]
    missing = [key for key in wanted if key not in known]
    read = yield from parallel([_read(key) for key in missing])
    found = {**known, **dict(zip(missing, read, strict=True))}
    return {key: found[key] for key in wanted}


def _fits(head: Head, key: str) -> bool:
    number = number_of(key)
    return number is not None and number <= head.replacement and not is_over(number, head)


def _read(key: str) -> Program[Proposal | None]:
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        return None
    try:
        return read_proposal(key, outcome.body)
    except (CorruptObject, UnsupportedFormat):
        return None


def clear_inbox() -> Program[None]:
    """Delete all objects of the inbox."""
    infos = yield from list_objects(INBOX_PREFIX)
    yield from parallel([delete(info.key) for info in infos])

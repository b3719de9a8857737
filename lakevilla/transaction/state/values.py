"""Values of a transaction's state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag

import msgspec

from lakevilla.global_log.bases import Base
from lakevilla.global_log.head import CommitSummary
from lakevilla.global_log.keys import HeldKey
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import HeldHead

# -------------------- values
#
# Values in a transaction's state: its key, its last save, the branch to merge, its decision.


@dataclass(slots=True)
class KeyUse:
    """The use of an idempotency key by a transaction, with the key's object as it was found.

    ``checkpoint``: the checkpoint of the stream whose batch number is ``version``; empty if it is
    not known, None if key and version are no batch. ``planned``: a digest of the batch's content;
    empty if it can't be known. ``gapless``: whether the stream sends each batch to this lake, even
    a batch without rows.
    """

    key: str
    version: int | None
    checkpoint: str | None = None
    planned: str = ""
    gapless: bool = False
    held: HeldKey | None = None
    committed: int | None = None
    is_bound: bool = False

    @property
    def batch(self) -> tuple[str | None, str, bool]:
        """Checkpoint, digest and gaplessness of the batch."""
        return self.checkpoint, self.planned, self.gapless

    @property
    def is_counted(self) -> bool:
        """True if missing batches before this one mean lost rows (note 49)."""
        return self.gapless and bool(self.checkpoint)


@dataclass(frozen=True, slots=True)
class Merging:
    """The branch that a transaction merges.

    ``entry`` is the branch's entry as it was read: the HEAD that is replaced must still have it.
    ``base`` is the state that counts as merged after the commit: the next merge begins there.
    ``keys`` are the idempotency keys that were committed on the branch, and that become the lake's
    by the commit. ``reached`` is the number of the branch's own HEAD that is merged.
    """

    name: str
    entry: RefEntry
    base: Base
    keys: tuple[KeyUse, ...] = ()
    reached: int = 0

    @property
    def version(self) -> str:
        """The version of the branch that is merged, such as ``etl@57``."""
        return f"{self.name}@{self.base.sequence}"


class Saved(msgspec.Struct, frozen=True):
    """The last save of a transaction: its time, the number of operations, its sublogs so far."""

    at: float
    operations: int
    sublogs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """The commit of a transaction in HEAD: it is final, whatever happens after it.

    ``together`` are the ids of the transactions that this process has committed in the same
    replacement of HEAD.
    """

    held: HeldHead
    summary: CommitSummary
    together: frozenset[str] = frozenset()


# -------------------- features
#
# The features: guarantees with which a transaction is begun (design, section 10).


class Feature(Flag):
    """The features of a transaction; combine them with ``|``.

    Attributes
    ----------
    NONE
        One write operation on one table, serializable; two requests for a warm append.
    R
        Recovery: many operations on one table, redone after a conflict, resumable if saved.
    CT
        Complex transactions: many tables, with a place in the queue of each. The transaction waits
        for the transactions ahead of it, and those behind wait for it, so that a long one succeeds.
    I
        Isolation: many tables, all read in one state, serializable.

    Examples
    --------
    >>> queued = lv.Feature.R | lv.Feature.CT | lv.Feature.I
    >>> with lake.transaction(queued) as txn:
    ...     txn.take_turn("stock")
    ...     _ = txn.delete("stock", where="true")
    >>> with lake.transaction(lv.Feature.NONE) as txn:  # two requests, one table
    ...     _ = txn.append("orders", [{"id": 2, "sku": "jam"}])
    """

    NONE = 0
    R = 1
    CT = 2
    I = 4  # noqa: E741 - the paper's name

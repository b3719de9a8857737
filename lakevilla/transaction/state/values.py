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
# The values that a transaction holds: its key; what it has saved, merged, decided.


@dataclass(slots=True)
class KeyUse:
    """The use of an idempotency key: what was found at its object on entry.

    ``checkpoint``: that of the stream whose batch ``version`` is; empty if none is known, None if
    the pair is no batch. ``planned``: a digest of the batch's content; empty if it can't be known.
    ``gapless``: whether each batch of the stream comes here, also one that has no rows.
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
        """The facts that are known of a batch, next to its number."""
        return self.checkpoint, self.planned, self.gapless

    @property
    def is_counted(self) -> bool:
        """True if a gap before it is a loss (note 49)."""
        return self.gapless and bool(self.checkpoint)


@dataclass(frozen=True, slots=True)
class Merging:
    """The branch that a transaction merges.

    ``entry`` is the one that was read, which must be in the HEAD that is replaced. ``base`` is
    the state that counts as merged from then on: the next merge begins there. ``keys`` are those
    that were committed on the branch, and belong to the lake from then on. ``reached`` is the
    number of the branch's own HEAD as it is merged.
    """

    name: str
    entry: RefEntry
    base: Base
    keys: tuple[KeyUse, ...] = ()
    reached: int = 0

    @property
    def version(self) -> str:
        """The branch as it is merged, as ``etl@57``."""
        return f"{self.name}@{self.base.sequence}"


class Saved(msgspec.Struct, frozen=True):
    """The last save of a transaction: its time, the number of operations, its sublogs so far."""

    at: float
    operations: int
    sublogs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """A transaction that HEAD holds: it is committed, whatever happens after that.

    ``together`` are the ids that this process has committed in the same replacement.
    """

    held: HeldHead
    summary: CommitSummary
    together: frozenset[str] = frozenset()


# -------------------- features
#
# The features are the guarantees that a transaction picks (design, section 10).


class Feature(Flag):
    """The features of a transaction; combine them with ``|``.

    Attributes
    ----------
    NONE
        One write operation on one table, serializable; two requests for a warm append.
    R
        Recovery: many operations on one table, redone after a conflict, resumable if saved.
    CT
        Complex transactions: many tables, with a place in the queue of each. It waits for those
        before it, and those behind wait for it, so that a long one succeeds.
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

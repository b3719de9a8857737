"""Features: the guarantees that a transaction picks (design, section 10)."""

from __future__ import annotations

from enum import Flag


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

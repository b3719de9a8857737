"""Features: the guarantees that a transaction picks (design, section 10)."""

from __future__ import annotations

from enum import Flag

__all__ = ["Feature"]


class Feature(Flag):
    """What a transaction asks for; combine with ``|``.

    Attributes
    ----------
    NONE
        One table, one write verb, serializable; two requests for a warm append.
    R
        Recovery: many verbs on one table, redone on conflict, resumable when saved.
    CT
        Complex transactions: many tables, in the queue of each. It waits for those before
        it and is waited for by those behind, so that a long one gets through.
    I
        Isolation: one bound state of all tables, many tables, serializable.
    """

    NONE = 0
    R = 1
    CT = 2
    I = 4  # noqa: E741 - the paper's name

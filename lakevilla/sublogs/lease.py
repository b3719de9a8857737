"""Leases: what one process has seen of the records of others.

A record is stale when its token has not changed for its lease on the observer's
own clock; no clock is ever compared with another's. One ``Leases`` serves all
transactions of a process, so that ten thousand stale markers take one lease and
not one each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from lakevilla.store.base import Token
from lakevilla.store.effects import Program
from lakevilla.store.readback import same_object

#: What is remembered at most; far more than wait for each other in any one lake.
MOST_OBSERVED = 65_536


class Renewable(Protocol):
    """A record that a heartbeat renews until its transaction has ended, or was dropped."""

    @property
    def key(self) -> int:
        """Of the transaction, the same for all its records."""

    @property
    def txn_id(self) -> str: ...

    @property
    def held_at(self) -> float | None:
        """When it was last replaced, by the own clock; None where nothing is left to renew."""

    def renew(self) -> Program[bool]:
        """Replace it. False once there is nothing left to renew."""
        ...


@dataclass(frozen=True, slots=True)
class _Observed:
    """``token`` was seen first at ``since`` and last at ``last``, unchanged."""

    token: Token
    since: float
    last: float
    lease_seconds: float

    @property
    def stale(self) -> bool:
        return self.last - self.since >= self.lease_seconds


class Leases:
    """Who has shown no sign of life for a lease.

    Keys are transaction ids, or the keys of markers that cannot be read.

    ``own_seconds`` is this process's lease: it stands in for one that makes no
    sense (a record may hold anything) and is what every lease may last.
    ``longest_seconds`` bounds what a record claims, lest one holds up a queue for years.

    Threads share it without a lock: every entry is one immutable value, put in
    place by one assignment. Safe because an entry is true of its own token whoever
    put it there last: lost, or put back by a thread that is behind, it holds
    another token than the next look finds, which begins anew, and the verdict comes
    later. A wrong one (on an answer that is itself a lease old) costs a redo:
    tickets give order, the commit point gives safety.
    """

    def __init__(self, own_seconds: float, longest_seconds: float) -> None:
        self._own_seconds = own_seconds
        self._longest_seconds = max(own_seconds, longest_seconds)
        self._observed: dict[str, _Observed] = {}
        self._tidied = -math.inf

    def observe(self, txn: str, token: Token, lease_seconds: float, now: float) -> bool:
        """Note what a look found; whether it is stale.

        ``now`` is the observer's ``Clock.elapsed()`` when the answer came. The
        first look, and one that finds another token, begin a lease.
        """
        before = self._observed.get(txn)
        if before is None and len(self._observed) >= MOST_OBSERVED and not self._tidy(now):
            return False
        since = now
        if before is not None and same_object(before.token, token):
            since = before.since
        seen = _Observed(token, since, now, self._bounded(lease_seconds))
        self._observed[txn] = seen
        return seen.stale

    def is_stale(self, txn: str, now: float) -> bool:
        """Whether the last look found it stale, no longer ago than our lease.

        Time alone makes nothing stale: between two looks the owner may have
        renewed its record unseen.
        """
        seen = self._observed.get(txn)
        return seen is not None and seen.stale and now - seen.last <= self._own_seconds

    def forget(self, txn: str) -> None:
        """Forget it: its record, or marker, was found deleted."""
        self._observed.pop(txn, None)

    def _bounded(self, lease_seconds: float) -> float:
        if not 0 < lease_seconds < math.inf:  # NaN is not either
            return self._own_seconds
        return min(lease_seconds, self._longest_seconds)

    def _tidy(self, now: float) -> bool:
        """Make room; false if all that is remembered is being waited for.

        Whoever waits looks several times a lease, so what was not seen for two is of
        no use. What is remembered is not put out by what is new: with more stale
        markers than fit, those that are remembered become stale, are deleted and
        make room; were the oldest put out, none would ever come to its verdict.
        """
        if now - self._tidied >= self._own_seconds:  # not again for each of many newcomers
            self._tidied = now
            # A copy: other threads add to it meanwhile.
            for txn, seen in self._observed.copy().items():
                if now - seen.last > 2 * self._own_seconds:
                    self.forget(txn)
        return len(self._observed) < MOST_OBSERVED

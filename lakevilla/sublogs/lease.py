"""Leases: when one process has last seen the records of other processes change.

A record is stale when its token has not changed for its lease on the observer's own clock; no clock
is ever compared with another's. All transactions of a process share one ``Leases``, so that ten
thousand stale markers cost a wait of one lease, and not of one lease each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from lakevilla.store.base import Token
from lakevilla.store.effects import Program
from lakevilla.store.readback import same_object

#: The most transactions that are remembered; far more than wait for each other in any lake.
MOST_OBSERVED = 65_536


class Renewable(Protocol):
    """A record that a heartbeat renews until its transaction has ended or was dropped."""

    @property
    def key(self) -> int:
        """The key of the transaction, the same for all its records."""

    @property
    def txn_id(self) -> str: ...

    @property
    def held_at(self) -> float | None:
        """The time of the last replacement, by this process's clock; None if there is no record."""

    def renew(self) -> Program[bool]:
        """Replace the record. False if there is no record to renew any more."""
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
    """The transactions that have shown no sign of life for a lease.

    Keys are transaction ids, or the keys of markers that cannot be read.

    ``own_seconds`` is this process's lease: it replaces a lease in a record that makes no sense
    (zero, infinite). ``longest_seconds`` limits the lease that a record claims, so that no record
    blocks a queue for years; the limit is never below ``own_seconds``.

    Threads share this object without a lock: every entry is one immutable value, stored by one
    assignment. This is safe because an entry is true of its own token, whichever thread stored it
    last. If an entry is lost, or a slow thread replaces it by an older one, its token differs from
    that which the next read finds; then the lease begins again, and the record is found stale
    later. If a record is taken for stale wrongly (by an answer that is itself a lease old), that
    costs a redo: tickets give order, the commit point gives safety.
    """

    def __init__(self, own_seconds: float, longest_seconds: float) -> None:
        self._own_seconds = own_seconds
        self._longest_seconds = max(own_seconds, longest_seconds)
        self._observed: dict[str, _Observed] = {}
        self._tidied = -math.inf

    def observe(self, txn: str, token: Token, lease_seconds: float, now: float) -> bool:
        """Note the token that a read has found, and return whether the record is stale.

        ``now`` is the observer's ``Clock.elapsed()`` when the answer arrived. The first read, and a
        read that finds another token, begin a lease.
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
        """Return whether the last read found the record stale, at most ``own_seconds`` ago.

        Time alone makes no record stale: the owner may have renewed its record since the last read.
        """
        seen = self._observed.get(txn)
        return seen is not None and seen.stale and now - seen.last <= self._own_seconds

    def forget(self, txn: str) -> None:
        """Forget a transaction whose record, or marker, was found deleted."""
        self._observed.pop(txn, None)

    def _bounded(self, lease_seconds: float) -> float:
        if not 0 < lease_seconds < math.inf:  # false for NaN too
            return self._own_seconds
        return min(lease_seconds, self._longest_seconds)

    def _tidy(self, now: float) -> bool:
        """Make room for a new entry; False if all entries are of records that were read lately.

        A waiting transaction reads several times per lease, so an entry whose record was not read
        for two leases is of no use. New entries do not replace those in use: if there are more
        stale markers than fit, those with entries become stale and are deleted, which makes room.
        If new entries replaced the oldest ones, no record would ever be found stale.
        """
        if now - self._tidied >= self._own_seconds:  # once per lease, not for each new entry
            self._tidied = now
            # A copy: other threads add to it meanwhile.
            for txn, seen in self._observed.copy().items():
                if now - seen.last > 2 * self._own_seconds:
                    self.forget(txn)
        return len(self._observed) < MOST_OBSERVED

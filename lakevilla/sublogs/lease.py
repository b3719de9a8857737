"""Leases: what one process has seen of the records of other processes.

A record is stale when its token has not changed for its lease on the observer's own clock; no clock
is ever compared with another's. One ``Leases`` serves all transactions of a process, so that ten
thousand stale markers take one lease and not one each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from lakevilla.store.base import Token
from lakevilla.store.effects import Program
from lakevilla.store.readback import same_object

#: Most transactions that are remembered; far more than wait for each other in any one lake.
MOST_OBSERVED = 65_536


class Renewable(Protocol):
    """A record that a heartbeat renews until its transaction has ended, or was dropped."""

    @property
    def key(self) -> int:
        """The key of the transaction, the same for all its records."""

    @property
    def txn_id(self) -> str: ...

    @property
    def held_at(self) -> float | None:
        """The time of the last replacement, by the own clock; None if nothing is left to renew."""

    def renew(self) -> Program[bool]:
        """Replace the record. False once there is nothing left to renew."""
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

    ``own_seconds`` is this process's lease: it replaces a lease that makes no sense (a record may
    hold anything), and every lease may last that long. ``longest_seconds`` limits what a record
    claims, so that no record blocks a queue for years.

    Threads share this object without a lock: every entry is one immutable value, put in place by
    one assignment. Safe because an entry is true of its own token, whichever thread put it there
    last. If an entry is lost, or put back by a thread that is behind, it holds another token than
    the next read finds; the lease then begins again, and the verdict is later. A wrong verdict (on
    an answer that is itself a lease old) costs a redo: tickets give order, the commit point gives
    safety.
    """

    def __init__(self, own_seconds: float, longest_seconds: float) -> None:
        self._own_seconds = own_seconds
        self._longest_seconds = max(own_seconds, longest_seconds)
        self._observed: dict[str, _Observed] = {}
        self._tidied = -math.inf

    def observe(self, txn: str, token: Token, lease_seconds: float, now: float) -> bool:
        """Note what a read has found, and return whether it is stale.

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
        """Return whether the last read found it stale, no longer ago than our lease.

        Time alone makes nothing stale: between two reads the owner may have renewed its record
        unseen.
        """
        seen = self._observed.get(txn)
        return seen is not None and seen.stale and now - seen.last <= self._own_seconds

    def forget(self, txn: str) -> None:
        """Forget a transaction: its record, or marker, was found deleted."""
        self._observed.pop(txn, None)

    def _bounded(self, lease_seconds: float) -> float:
        if not 0 < lease_seconds < math.inf:  # false for NaN too
            return self._own_seconds
        return min(lease_seconds, self._longest_seconds)

    def _tidy(self, now: float) -> bool:
        """Make room; False if every remembered entry is still being waited for.

        A waiting transaction reads several times a lease, so an entry that was not seen for two
        leases is of no use. New entries do not replace remembered ones: with more stale markers
        than fit, the remembered ones become stale, are deleted and make room. If the oldest were
        replaced, none would ever reach its verdict.
        """
        if now - self._tidied >= self._own_seconds:  # not again for each of many new entries
            self._tidied = now
            # A copy: other threads add to it meanwhile.
            for txn, seen in self._observed.copy().items():
                if now - seen.last > 2 * self._own_seconds:
                    self.forget(txn)
        return len(self._observed) < MOST_OBSERVED

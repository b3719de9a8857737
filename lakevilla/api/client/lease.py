"""Whether a store is fast enough for the lease that a user has set."""

from __future__ import annotations

import math
import statistics

from lakevilla.clock import Clock
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.head import HEAD_KEY
from lakevilla.settings import Settings
from lakevilla.store.effects import Program, get

#: A third of this is 17 ms. Below, a busy interpreter (a thread waits for its turn in
#: steps of 5 ms) and a machine's scheduler would make live transactions look dead.
_LEAST_SECONDS = 0.05
_LOOKS = 5
#: A third of the lease has room for so many requests: the heartbeat renews one record after
#: the other, may meet the transaction's own write, and may have to ask twice.
_REQUESTS_IN_A_THIRD = 10


def check_lease(settings: Settings, clock: Clock) -> Program[None]:
    """Refuse a lease in which a live client could not renew its record in time.

    Too short a lease does no harm to rows, but every transaction would take every other
    for dead. The default is long enough for any store, so it asks nothing.

    Raises
    ------
    InvalidOperation
        The lease is below what the store's latency allows.
    """
    lease = settings.lease_seconds
    if lease >= Settings().lease_seconds:
        return
    if lease < _LEAST_SECONDS:
        raise InvalidOperation(
            f"settings: lease_seconds={lease:g} is too short: a busy process could not renew its "
            f"records in time; set it to {_LEAST_SECONDS:g} or more"
        )
    taken = []
    for _ in range(_LOOKS):
        began = clock.elapsed()
        yield from get(HEAD_KEY)
        taken.append(clock.elapsed() - began)
    # The median: the first request opens a connection, and one in five may be slow.
    latency = statistics.median(taken)
    least = 3 * _REQUESTS_IN_A_THIRD * latency
    if lease < least:
        raise InvalidOperation(
            f"settings: lease_seconds={lease:g} is too short for this store, which takes "
            f"{latency:.3g} s a request (median of {_LOOKS}): set it to {_rounded_up(2 * least):g} "
            "or more, or leave it at its default"
        )


def _rounded_up(seconds: float) -> float:
    """To two digits."""
    digits = 1 - math.floor(math.log10(seconds))
    return math.ceil(seconds * 10.0**digits) / 10.0**digits

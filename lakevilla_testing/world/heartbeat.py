"""The heartbeat of a simulated client: a strand concurrent with those of its transactions."""

from __future__ import annotations

from lakevilla.errors import LakeVillaError
from lakevilla.store.effects import Program, sleep
from lakevilla.sublogs.lease import Renewable
from lakevilla.transaction.queue.places import place_reads
from lakevilla.transaction.state.late_reads import PLACE_AFTER_SECONDS, is_due_for_places
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla_testing.world.client import Client


class SimulatedHeartbeat:
    """A renewal of the records of a client's transactions every third of their lease.

    ``Context.renewed`` passes records to it, as in the real library. The strand begins with the
    first record and ends when no record is left, so that a history whose clients are done ends.
    """

    def __init__(self, client: Client, lease_seconds: float) -> None:
        self._client = client
        self._pause = lease_seconds / 3
        self._beating: list[Renewable] = []
        self._runs = False

    def add(self, record: Renewable) -> None:
        """Renew a transaction's record from now on."""
        if all(record.key != other.key for other in self._beating):
            self._beating.append(record)
        if not self._runs:
            self._runs = True
            self._client.simulation.spawn(self._client, self._beat())

    def drop(self, txn: TransactionState) -> None:
        """Stop renewing: the caller has dropped the transaction, whether that has ended or not."""
        self._forget(id(txn))

    def _forget(self, key: int) -> None:
        self._beating = [other for other in self._beating if other.key != key]

    def _beat(self) -> Program[None]:
        while self._beating:
            yield from sleep(self._pause)
            for record in list(self._beating):
                try:
                    epochs = yield from record.renew()
                except LakeVillaError:
                    continue  # the store fails at present: again in a third of a lease
                if not epochs:
                    self._forget(record.key)
        self._runs = False


def think(txn: TransactionState, seconds: float) -> Program[None]:
    """Pause between two verbs, as a caller does; the heartbeat may take the transaction's places.

    The heartbeat's work is done in the caller's strand, since a verb that is called meanwhile waits
    for it.
    """
    while seconds > 0 and txn.bound.is_bound:
        pause = min(seconds, PLACE_AFTER_SECONDS)
        yield from sleep(pause)
        seconds -= pause
        if is_due_for_places(txn):
            try:
                yield from place_reads(txn)
            except LakeVillaError:
                continue  # the store fails at present: again at the next check
        if txn.claims.queue is not None:
            break
    yield from sleep(seconds)

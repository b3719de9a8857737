"""The heartbeat renews the records of open transactions, and drops those that have ended."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from lakevilla.api.client.heartbeat import Heartbeat
from lakevilla.clock import SystemClock
from lakevilla.store.effects import Program

#: Short, so that a test waits for milliseconds; nothing here depends on how long it is.
LEASE_SECONDS = 0.03


class Doing:
    """A runner of programs that send no request."""

    def run(self, program: Program[bool]) -> bool:
        with pytest.raises(StopIteration) as stop:
            next(program)
        return bool(stop.value.value)


class Record:
    """A record that ends after so many renewals, the first ``failures`` of which fail."""

    _keys = itertools.count()

    def __init__(self, times: int, failures: int = 0) -> None:
        self.key = next(self._keys)
        self.txn_id = f"txn{self.key}"
        self.held_at: float | None = 0.0
        self.renewed, self.failed = 0, 0
        self.over = threading.Event()
        self._times, self._failures = times, failures

    def renew(self) -> Program[bool]:
        yield from ()
        if self.failed < self._failures:
            self.failed += 1
            raise OSError("no route")
        self.renewed += 1
        self.held_at = SystemClock().elapsed()
        if self.renewed < self._times:
            return True
        self.over.set()
        return False


@pytest.fixture
def logged() -> list[str]:
    return []


@pytest.fixture
def heartbeat(logged: list[str]) -> Iterator[Heartbeat]:
    beat = Heartbeat(
        Doing(),  # type: ignore[arg-type]
        SystemClock(),
        LEASE_SECONDS,
        lambda message, txn_id: logged.append(message),
    )
    yield beat
    beat.close()


def test_each_record_is_renewed_until_its_transaction_has_ended(heartbeat: Heartbeat) -> None:
    records = [Record(3), Record(1), Record(5)]
    for record in records:
        heartbeat.add(record)
    for record in records:
        assert record.over.wait(20)
    assert [record.renewed for record in records] == [3, 1, 5]


def test_a_failed_renewal_is_logged_and_repeated_and_other_records_are_still_renewed(
    heartbeat: Heartbeat, logged: list[str]
) -> None:
    failing, well = Record(2, failures=2), Record(2)
    heartbeat.add(failing)
    heartbeat.add(well)
    assert well.over.wait(20)
    assert failing.over.wait(20)
    assert len(logged) == 2
    assert f"could not renew transaction {failing.txn_id} now: OSError('no route')" in logged[0]


def test_a_record_added_after_all_others_have_ended_restarts_the_heartbeat(
    heartbeat: Heartbeat,
) -> None:
    for _ in range(3):
        record = Record(1)
        heartbeat.add(record)
        assert record.over.wait(20)


def test_a_closed_heartbeat_renews_no_record(heartbeat: Heartbeat) -> None:
    record = Record(1_000_000)
    heartbeat.add(record)
    heartbeat.close()
    renewed = record.renewed
    assert not heartbeat.is_at_work
    assert record.renewed == renewed

"""Sessions left open: how they end, and how long other transactions wait for them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.api.session import Session
from tests.support.inside import executor, inside

#: A program that opens a queued transaction, prints "open", and waits until its input ends.
LEFT_OPEN = """
import sys
import lakevilla as lv
session = lv.connect(sys.argv[1]).session(features=lv.Feature.R | lv.Feature.CT | lv.Feature.I)
if sys.argv[2] != "0":
    session.sql(f"SET idle_timeout_seconds = {sys.argv[2]}")
session.sql("BEGIN; SELECT * FROM t; INSERT INTO t VALUES (7)")
session.transaction.save()
print("open", flush=True)
sys.stdin.read()
try:
    session.sql("COMMIT")
except lv.LakeVillaError as error:
    print(error.kind, flush=True)
else:
    print("committed", flush=True)
"""


@pytest.fixture
def lake(tmp_path: Path) -> lv.Lake:
    lake = lv.connect(tmp_path)
    lake.session().sql("CREATE TABLE t (id BIGINT); INSERT INTO t VALUES (1)")
    return lake


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end
        time.sleep(0.02)


def ids(reads: Any) -> list[int]:
    found = reads.sql("SELECT id FROM t ORDER BY id")
    return [row["id"] for row in found.to_pylist()]


def state_of(session: Session) -> str:
    assert session.transaction is not None
    return session.transaction.state


def test_an_idle_transaction_is_aborted_and_every_statement_raises_until_rollback(
    lake: lv.Lake, tmp_path: Path
) -> None:
    def files() -> set[str]:
        return {path.name for path in tmp_path.glob("t/*.parquet")}

    session = lake.session()
    before = files()
    session.sql("SET idle_timeout_seconds = 0.2")
    session.sql("BEGIN; INSERT INTO t VALUES (2); SELECT * FROM t")
    until(lambda: state_of(session) == "failed" and files() == before)
    for text in ("SELECT * FROM t", "INSERT INTO t VALUES (3)"):
        with pytest.raises(lv.TransactionAborted, match=r"did nothing for 0.2 seconds"):
            session.sql(text)
    session.sql("ROLLBACK")
    session.sql("INSERT INTO t VALUES (4)")
    assert ids(lake) == [1, 4]
    session.sql("BEGIN; INSERT INTO t VALUES (5)")
    until(lambda: state_of(session) == "failed")
    with pytest.raises(lv.TransactionAborted):
        session.sql("COMMIT")
    assert session.transaction is None
    session.sql("SET idle_timeout_seconds = 0")
    session.sql("BEGIN; INSERT INTO t VALUES (6)")
    assert session.transaction is not None
    assert executor(session.transaction).idle.held_at is not None
    assert not inside(lake).client.idlers._entries
    session.sql("COMMIT")
    assert ids(lake) == [1, 4, 6]


def test_each_use_of_a_transaction_restarts_its_idle_timeout(lake: lv.Lake) -> None:
    session = lake.session(idle_timeout_seconds=1000)
    session.sql("BEGIN; INSERT INTO t VALUES (2)")
    assert session.transaction is not None
    idle, client = executor(session.transaction).idle, inside(lake).client
    idle._used_at -= 999
    assert client.run(idle.renew())
    idle._used_at -= 2
    ids(session)
    assert client.run(idle.renew())
    stream = session.transaction.scan("t")
    idle._used_at -= 1001
    assert next(iter(stream)).num_rows
    assert client.run(idle.renew())
    idle._used_at -= 1001
    with executor(session.transaction).turns.verb():
        pass  # a verb without effect is no use
    assert not client.run(idle.renew())
    assert state_of(session) == "failed"


def test_a_committed_transaction_is_not_aborted_by_the_idle_timeout(lake: lv.Lake) -> None:
    session = lake.session(idle_timeout_seconds=1000)
    session.sql("BEGIN; INSERT INTO t VALUES (2)")
    txn = session.transaction
    assert txn is not None
    session.sql("COMMIT")
    idle = executor(txn).idle
    idle._used_at -= 1001
    assert not inside(lake).run(idle.renew())
    assert txn.state == "committed"
    assert ids(lake) == [1, 2]


@pytest.mark.parametrize("seconds", [-1, "soon", True])
def test_an_idle_timeout_that_is_no_number_of_seconds_is_refused(
    lake: lv.Lake, seconds: object
) -> None:
    with pytest.raises(lv.InvalidOperation, match="idle_timeout_seconds must be a number"):
        lake.transaction(idle_timeout_seconds=seconds)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", ["1", "0"])
@pytest.mark.night
def test_other_clients_continue_next_to_a_session_left_open(
    lake: lv.Lake, tmp_path: Path, limit: str
) -> None:
    command = [sys.executable, "-c", LEFT_OPEN, str(tmp_path), limit]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as left:
        assert left.stdout is not None
        assert left.stdout.readline() == "open\n"
        # A transaction without Feature.CT does not wait.
        lake.session().sql("INSERT INTO t VALUES (2)")
        queues = lv.Feature.R | lv.Feature.CT | lv.Feature.I
        # With an idle timeout the session gives its place back; otherwise the wait times out.
        wait = 60.0 if limit == "1" else 1.0
        with lake.transaction(queues, wait_timeout_seconds=wait) as txn:
            txn.delete("t", "id = 2")
            txn.append("t", [{"id": 3}])
        assert ids(lake) == [1, 3]
        if limit == "1":
            until(lambda: not lake.transactions())
        said, _ = left.communicate()
    assert said.strip() == ("aborted" if limit == "1" else "conflict")
    assert ids(lake) == [1, 3]
    assert not lake.transactions()

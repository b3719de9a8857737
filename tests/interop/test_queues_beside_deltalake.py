"""Run clients in queues, clients without queues, and deltalake on the same two tables at once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from deltalake.exceptions import CommitFailedError

import lakevilla as lv
from tests.interop.delta.readers import duckdb_rows
from tests.support.places import fill, make_place
from tests.support.queues import QUEUED, I, R, head_of, left_over
from tests.support.search import how_many
from tests.support.tables import accounts, in_order

SECONDS = how_many(1, whole=3, soak=10)
#: deltalake transfers money between the first four; clients set the last two from their reads.
SHARED, ROWS = 4, 6
TABLES = ("north", "south")


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_the_bank_s_sum_is_right_while_deltalake_writes_too(
    kind: str, request: pytest.FixtureRequest
) -> None:
    place = make_place(kind, request)
    fill(place, {table: accounts(ROWS) for table in TABLES})
    with place.connect() as lake:
        lake.register({table: table for table in TABLES})
    settings = lv.Settings(
        lease_seconds=5.0,
        wait_timeout_seconds=5.0,
        wait_poll_seconds=0.02,
        wait_poll_cap_seconds=0.1,
        retry_base_seconds=0.005,
    )
    done = time.monotonic() + SECONDS
    moved = dict.fromkeys(TABLES, 0)
    logged: dict[str, list[int]] = {table: [] for table in TABLES}
    told: list[str] = []
    counted = threading.Lock()

    def transacts(number: int, features: lv.Feature) -> int:
        """Transfer money between the tables in crossing order; a row in each table records it."""
        source, target = TABLES if number % 2 else TABLES[::-1]
        reads = number % 3 == 0
        rows = range(SHARED, ROWS) if reads else range(ROWS)
        commits = 0

        def transfer(txn: lv.Transaction, row: int, mark: int) -> None:
            if reads:
                found = txn.read(source, where=f"id = {row}")["balance"].to_pylist()
                txn.update(source, {"balance": found[0] - 1}, f"id = {row}")
            else:
                txn.update(source, {"balance": "balance - 1"}, f"id = {row}")
            txn.update(target, {"balance": "balance + 1"}, f"id = {row}")
            txn.append(target, [{"id": mark, "balance": 0}])

        with place.connect(settings=settings) as lake:
            while time.monotonic() < done:
                mark = 1_000_000 * (number + 1) + commits
                row = rows[commits % len(rows)]
                try:
                    lake.run(transfer, row, mark, features=features, attempts=1000)
                except lv.ForeignConflict as error:  # committed, and reconciled
                    told.append(error.message)
                commits += 1
                with counted:
                    moved[source] -= 1
                    moved[target] += 1
                    logged[target].append(mark)
        return commits

    def deltalake_works(number: int) -> int:
        """Transfer money within a table, and append rows."""
        table = TABLES[number % 2]
        commits = attempts = 0
        while time.monotonic() < done:
            attempts += 1
            first, second = attempts % SHARED, (attempts + 1) % SHARED
            change = f"CASE id WHEN {first} THEN balance - 1 ELSE balance + 1 END"
            with contextlib.suppress(CommitFailedError):  # a user would retry
                place.delta(table).update(
                    updates={"balance": change}, predicate=f"id IN ({first}, {second})"
                )
                commits += 1
            mark = -(1_000_000 * (number + 1)) - attempts
            with contextlib.suppress(CommitFailedError):
                place.write(table, [{"id": mark, "balance": 0}])
                commits += 1
                with counted:
                    logged[table].append(mark)
            time.sleep(0.02)
        return commits

    mixes = [QUEUED["R|CT"], QUEUED["R|CT|I"], R | I, QUEUED["R|CT|I"]]
    with ThreadPoolExecutor(6) as pool:
        jobs: list[Callable[[], int]] = [
            *(lambda n=n, mix=mix: transacts(n, mix) for n, mix in enumerate(mixes)),  # type: ignore[misc]
            *(lambda n=n: deltalake_works(n) for n in range(2)),  # type: ignore[misc]
        ]
        commits = [end.result() for end in [pool.submit(job) for job in jobs]]
    assert all(count > 0 for count in commits), commits
    # deltalake changes no row that a client has read, and deletes none.
    assert [message for message in told if "cancelled" in message or "had read" in message] == []
    with place.connect() as lake:
        report = lake.recover()
        assert report.ok, report
        assert left_over(lake, *TABLES) == []
        assert head_of(place).reserved == ()
        for table in TABLES:
            rows = lake.snapshot().read(table)
            assert in_order(rows) == place.seen(table)
            if kind == "local":
                assert duckdb_rows(place.uri(table), "id") == rows.sort_by("id").to_pylist()
            accounts_of = [row for row in rows.to_pylist() if 0 <= row["id"] < ROWS]
            assert len(accounts_of) == ROWS
            assert sum(row["balance"] for row in accounts_of) == 100 * ROWS + moved[table]
            marks = sorted(row["id"] for row in rows.to_pylist() if not 0 <= row["id"] < ROWS)
            assert marks == sorted(logged[table]), "a row of an acknowledged commit, once"
            for version in range(place.delta(table).version() + 1):
                place.delta(table, version)
    print(f"commits by client: {commits}")

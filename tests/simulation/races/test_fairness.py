"""An Iceberg client with four retries, as Java's has, commits beside busy clients of LakeVilla."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile

from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.global_log.head import HEAD_KEY, Head, Reservation
from lakevilla.global_log.repo import load_tables
from lakevilla.ids import NO_TXN
from lakevilla.lake.context import Context
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.markers.guests import GUEST_SECONDS
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program, sleep
from lakevilla.sublogs.record import TXNS_PREFIX
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.commit.given import Answer, TableRequest, give
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.read_write import append
from lakevilla_testing.histories.attempts import COLUMNS, SCHEMA, context_of
from lakevilla_testing.histories.givers import requirements_of, shown_table
from lakevilla_testing.tables import iceberg_writer
from lakevilla_testing.tables.iceberg_reader import IcebergTable
from lakevilla_testing.tables.iceberg_snapshots import with_snapshot, write_rows
from lakevilla_testing.tables.reader import table_rows
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.latency import PROFILES
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.timed import TimedSimulation
from tests.support.search import first_seed

TABLE = "t"
#: Iceberg's defaults: `commit.retry.num-retries` and `commit.retry.min-wait-ms`.
_RETRIES, _FIRST_WAIT_SECONDS = 4, 0.1
#: Java's client sends a request that gets 429 so often again, after the answer's `Retry-After`.
_RESENDS, _RETRY_AFTER_SECONDS = 5, 2.0
_GUEST = 1_000_000


@dataclass
class Beside:
    """An Iceberg client that commits some times, beside clients of LakeVilla that never rest."""

    commits: int
    busy: int = 4
    gateways: int = 1
    profile: str = "s3"
    outcomes: Counter[str] = field(default_factory=Counter)
    tries: Counter[int] = field(default_factory=Counter)
    rows: list[int] = field(default_factory=list)
    #: How long each commit of LakeVilla took, in virtual seconds.
    seconds: list[float] = field(default_factory=list)
    busy_answers: int = 0
    is_over: bool = False
    done: int = 0

    def run(self, seed: int) -> TimedSimulation:
        simulation = TimedSimulation(seed, profile=PROFILES[self.profile])
        maker = Simulation(seed)
        maker.store = simulation.store
        maker.add("maker", lambda client: iceberg_writer.create(client, TABLE, COLUMNS, []))
        maker.run()
        for number in range(self.busy):
            simulation.add(f"busy {number}", partial(self._busy, simulation))
        simulation.add("guest", self._guest)
        simulation.run()
        found = Counter(int(row["id"]) for row in table_rows(simulation.store, TABLE))
        assert found == Counter(self.rows), "each acknowledged row is there, once"
        return simulation

    def _busy(self, simulation: TimedSimulation, client: Client) -> Program[None]:
        context = context_of(client)
        while not self.is_over:
            began, row = simulation.now, len(self.seconds) + 1
            self.seconds.append(0.0)
            txn = begun(context)
            data = {"id": [row], "balance": [row], "items": [""]}
            rows = pa.RecordBatchReader.from_batches(
                SCHEMA, [pa.RecordBatch.from_pydict(data, SCHEMA)]
            )
            yield from append(txn, TABLE, rows)
            yield from commit(txn)
            self.rows.append(row)
            self.seconds[row - 1] = simulation.now - began

    def _guest(self, client: Client) -> Program[None]:
        contexts = [context_of(client) for _ in range(self.gateways)]
        yield from sleep(2.0)
        for number in range(self.commits):
            row = _GUEST + number
            answer = yield from self._commit(client, contexts, row)
            self.outcomes[answer.outcome] += 1
            if answer.outcome == "done":
                self.rows.append(row)
        self.is_over = True

    def _commit(self, client: Client, contexts: list[Context], row: int) -> Program[Answer]:
        """Commit as Java's client does: it writes its data once, and the rest for each try."""
        files = None
        for retry in range(_RETRIES + 1):
            if retry:
                wait = _FIRST_WAIT_SECONDS * 2 ** (retry - 1)
                yield from sleep(wait * (1 + client.random.random() / 10))
            context = client.random.choice(contexts)
            table = yield from loaded(context)
            if files is None:
                row_of = {"id": row, "balance": 0, "items": ""}
                files = yield from write_rows(client, table, [row_of])
            request = yield from request_of(client, table, files)
            for _ in range(_RESENDS + 1):
                context = client.random.choice(contexts)
                answer = yield from given(context, request)
                if answer.outcome != "busy":
                    break
                self.busy_answers += 1
                yield from sleep(_RETRY_AFTER_SECONDS)
            if answer.outcome != "conflict":
                break
        self.tries[retry + 1] += 1
        return answer


def request_of(
    client: Client, table: IcebergTable, files: Sequence[DataFile]
) -> Program[TableRequest]:
    """Store a snapshot that adds files, and return the request for its commit."""
    metadata = yield from with_snapshot(client, table, "append", files)
    snapshot = metadata["snapshots"][-1]
    main = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot["snapshot-id"]}
    updates = (
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", **main},
    )
    return TableRequest(TABLE, requirements_of(table), updates)


def reservations(context: Context) -> tuple[Reservation, ...]:
    return () if context.held is None else context.held.head.reserved


def loaded(context: Context) -> Program[IcebergTable]:
    """Return the table as a gateway shows it: what is decided is published first."""
    held = yield from context.head()
    assert held is not None
    yield from load_tables(held.head, [TABLE])
    yield from publish_table(context, held.head, TABLE)
    tail = yield from probe(context, (yield from open_tail(context, TABLE)))
    assert isinstance(tail.snapshot, IcebergSnapshot)
    assert tail.snapshot.document is not None
    return (yield from shown_table(TABLE, tail.snapshot.document))


def given(context: Context, request: TableRequest) -> Program[Answer]:
    """Ask for a commit as a gateway does, which has read HEAD for the names of the tables."""
    held = yield from context.head()
    return (yield from give(partial(begun, context), [request], held))


def begun(context: Context) -> TransactionState:
    floor = NO_TXN if context.held is None else context.held.head.floor
    options = Options(Feature.R | Feature.I, wait_timeout_seconds=5.0)
    txn_id = context.new_txn_id(above=floor)
    return begin(TransactionState(context, txn_id, options, through_head=True))


def reserved_in(simulation: TimedSimulation) -> tuple[Reservation, ...]:
    body = simulation.store.objects[HEAD_KEY].body
    return decode(HEAD_KEY, body, Head).reserved


def records_in(simulation: TimedSimulation) -> list[str]:
    return [key for key in simulation.store.objects if key.startswith(f"{TXNS_PREFIX}/")]


@pytest.mark.parametrize("gateways", [1, 3])
def test_an_iceberg_client_is_not_starved_by_blind_appends(gateways: int) -> None:
    beside = Beside(3, gateways=gateways)
    simulation = beside.run(first_seed())
    assert beside.outcomes == {"done": 3}
    assert sum(number * count for number, count in beside.tries.items()) > 3, "there was no race"
    assert not reserved_in(simulation)
    assert not records_in(simulation)


class Leaving(Beside):
    """An Iceberg client that is refused twice, and does not come again."""

    def _guest(self, client: Client) -> Program[None]:
        context = context_of(client)
        yield from sleep(2.0)
        table = yield from loaded(context)
        files = yield from write_rows(client, table, [{"id": _GUEST, "balance": 0, "items": ""}])
        request = yield from request_of(client, table, files)
        while not reservations(context):
            self.outcomes[(yield from given(context, request)).outcome] += 1
            yield from sleep(0.1)
        self.done = len(self.rows)
        yield from sleep(2 * GUEST_SECONDS)
        self.is_over = True


def test_a_client_that_does_not_come_again_holds_up_others_for_three_seconds() -> None:
    beside = Leaving(0)
    simulation = beside.run(first_seed())
    assert beside.outcomes["conflict"] + beside.outcomes["busy"] == beside.outcomes.total()
    longest = max(beside.seconds)
    assert GUEST_SECONDS < longest < GUEST_SECONDS + 4
    assert len(beside.rows) > beside.done + 4
    assert not reserved_in(simulation)

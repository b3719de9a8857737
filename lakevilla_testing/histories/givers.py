"""Iceberg clients that ask a lake for commits, as a REST server passes their requests on.

A client makes its snapshots on what it was shown, and sends the very same request again if it gets
no answer, also to another process. What it was told must be true of the tables at the end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.formats.iceberg.metadata.definition import metadata_version
from lakevilla.formats.iceberg.metadata.file import Metadata
from lakevilla.ids import NO_TXN
from lakevilla.lake.context import Context
from lakevilla.store.effects import Program, sleep
from lakevilla.transaction.commit.asked import Answer, NewName, TableRequest
from lakevilla.transaction.commit.given import give
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.begin import begin
from lakevilla_testing.checks.invariants import Violated
from lakevilla_testing.histories.attempts import World, context_of
from lakevilla_testing.histories.plan import RECREATED, TABLES
from lakevilla_testing.tables.bare import UnreadableTable
from lakevilla_testing.tables.iceberg_reader import IcebergTable, manifests_in, read_rows, uri_of
from lakevilla_testing.tables.iceberg_snapshots import with_snapshot, write_rows
from lakevilla_testing.tables.iceberg_writer import only
from lakevilla_testing.tables.reader import read_rows as read_rows_of
from lakevilla_testing.tables.reader import read_table, run_now
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.rows import Row

#: The ids of their rows begin here.
_FIRST_ID = 3_000_000
#: After so many deaths a client stays dead.
_DEATHS = 3
#: How often a request makes a table, too, and the names that tables get.
_MAKES = 0.3
NEW_NAMES = ("made", "made too")
#: How often a client sends a request.
_SENDS = 4
#: How often the answer to a request is lost, beside what the history's faults lose.
_LOST = 0.25


@dataclass(eq=False)
class Asked:
    """A request, the rows that it adds by table, and the answer of which its client knows."""

    requests: tuple[TableRequest, ...]
    rows: Mapping[str, int]
    outcome: Literal["none", "done", "refused"] = "none"
    is_over: bool = False


def giver(world: World) -> Callable[[Client], Program[None]]:
    """Return a client that asks for commits, one after the other, and goes on after it has died."""

    def program(client: Client) -> Program[None]:
        context = context_of(client)
        context.notify = world.notice
        asked = world.asked[client.name.rstrip("'")]
        if client.name.count("'") >= _DEATHS:
            client.restart = None
        yield from _send(world, context, client, asked)
        for _ in range(world.plan.transactions):
            yield from sleep(client.random.random())
            made = yield from _made(world, context, client)
            if made is not None:
                asked.append(made)
                yield from _send(world, context, client, asked)

    return program


def answers_are_true(world: World, rows: Mapping[str, list[Row]]) -> None:
    """Compare the answers with the tables' rows.

    Raises ``Violated`` if a request that is done is not there once on each table, or one that was
    refused is there.
    """
    there = Counter((table, row["id"]) for table, found in rows.items() for row in found)
    for asked in (one for some in world.asked.values() for one in some):
        found = [there[key] for key in asked.rows.items()]
        wrong = (
            max(found) > 1
            or (asked.outcome == "done" and min(found) < 1)
            or (asked.outcome == "refused" and any(found))
        )
        if wrong:
            raise Violated(f"a request was {asked.outcome}, and its rows are there {found} times")
        world.events[f"given {asked.outcome}"] += 1


def _send(world: World, context: Context, client: Client, asked: list[Asked]) -> Program[None]:
    """Send the last request until its client has an answer, or gives up."""
    if not asked or asked[-1].is_over:
        return
    for number in range(_SENDS):
        answer = yield from answer_to(context, asked[-1].requests)
        is_lost = number + 1 < _SENDS and client.random.random() < _LOST
        if answer is not None and answer.outcome != "unknown" and not is_lost:
            asked[-1].outcome = "done" if answer.outcome == "done" else "refused"
            if answer.outcome == "done":
                _is_in_all_logs(world, asked[-1])
            world.events[f"answer {answer.outcome}"] += 1
            break
        yield from sleep(client.random.random())
    asked[-1].is_over = True


def _is_in_all_logs(world: World, asked: Asked) -> None:
    """Check that what was just called done is in the log of each table: others read it there."""
    store = world.simulation.store
    for table, number in asked.rows.items():
        logged = run_now(store, read_table(table))
        rows = [] if logged is None else run_now(store, read_rows_of(logged))
        if all(row["id"] != number for row in rows):
            raise Violated(f"a request is done, and the log of {table} lacks row {number}")


def answer_to(context: Context, requests: tuple[TableRequest, ...]) -> Program[Answer | None]:
    """Return the answer to a request; None if the store has failed, as a server says 5xx then."""

    def begun() -> TransactionState:
        floor = NO_TXN if context.held is None else context.held.head.floor
        options = Options(Feature.R | Feature.I, wait_timeout_seconds=5.0)
        txn_id = context.new_txn_id(above=floor)
        return begin(TransactionState(context, txn_id, options, through_head=True))

    try:
        held = yield from context.head()  # which names the tables
        return (yield from give(begun, requests, held))
    except LakeVillaError as error:
        if error.kind not in ("store", "version_not_found", "table_not_found", "corrupt_object"):
            raise
        return None


def _made(world: World, context: Context, client: Client) -> Program[Asked | None]:
    """Load some tables, and make a request for changes of them."""
    recreated = RECREATED if "recreate" in world.plan.foreign else ""
    known = [t for t in TABLES if world.plan.format_of(t) == "iceberg" and t != recreated]
    chosen = client.random.sample(known, client.random.randint(1, min(2, len(known))))
    loaded = yield from answer_to(context, tuple(TableRequest(one) for one in chosen))
    if loaded is None or loaded.outcome != "done":
        return None
    requests: list[TableRequest] = []
    rows: dict[str, int] = {}
    for number, location in enumerate(chosen):
        updates: tuple[dict[str, Any], ...] = ()
        try:
            table = yield from shown_table(location, loaded.tables[location])
            if not number or client.random.random() < 0.7:  # else it only relies on the table
                rows[location] = _FIRST_ID + world.value()
                updates = yield from _updates(client, table, location, rows[location])
        except (UnreadableTable, StoreError):
            return None
        requests.append(TableRequest(location, requirements_of(table), updates))
        if not number and world.plan.made and client.random.random() < _MAKES:
            own = _FIRST_ID + world.value()
            try:
                made = yield from _new_table(client, table, own)
            except StoreError:
                return None
            if client.random.random() < 0.5:
                return Asked((made,), {made.location: own})
            rows[made.location] = own
            requests.append(made)
    return Asked(tuple(requests), rows)


def _new_table(client: Client, like: IcebergTable, number: int) -> Program[TableRequest]:
    """Store a row for a table at a place of its own; return the request that makes the table."""
    name = client.random.choice(NEW_NAMES)
    location = f"{name}-{client.ids.uuid().replace('-', '')[-8:]}"
    schema = {**like.metadata["schemas"][0], "schema-id": 0}
    fields = [{**one, "required": False} for one in schema["fields"]]
    metadata = {
        **like.metadata,
        "last-sequence-number": 0,
        "schemas": [{**schema, "fields": fields}],
        "current-schema-id": 0,
        "current-snapshot-id": -1,
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
    }
    if like.metadata["format-version"] >= 3:
        metadata["next-row-id"] = 0
    blank = IcebergTable(location, -1, metadata)
    added = yield from write_rows(client, blank, [{"id": number, "balance": 0, "items": ""}])
    after = yield from with_snapshot(client, blank, "append", added)
    snapshot = after["snapshots"][-1]
    main = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot["snapshot-id"]}
    updates: tuple[dict[str, Any], ...] = (
        {"action": "assign-uuid", "uuid": client.ids.uuid()},
        {"action": "upgrade-format-version", "format-version": metadata["format-version"]},
        {"action": "set-location", "location": uri_of(location)},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", **main},
    )
    created = ({"type": "assert-create"},)
    return TableRequest(location, created, updates, makes=NewName(name, name))


def shown_table(location: str, document: Metadata) -> Program[IcebergTable]:
    """Return a table as the client was shown it. Raises ``UnreadableTable``."""
    metadata = json.loads(document.encode())
    version = metadata_version(document.key.rpartition("/")[2])
    table = IcebergTable(location, -1 if version is None else version, metadata)
    if table.current is not None:
        table.manifests = yield from manifests_in(table, table.current)
    return table


def requirements_of(table: IcebergTable) -> tuple[dict[str, Any], ...]:
    current = table.metadata["current-snapshot-id"]
    wanted = None if current == -1 else current
    return (
        {"type": "assert-table-uuid", "uuid": table.table_id},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": wanted},
    )


def request_for(
    client: Client, location: str, shown: Metadata, number: int
) -> Program[TableRequest]:
    """Store what adds a row to a table as it was shown, and return the request for it.

    The client's files lie where the metadata says. Raises ``UnreadableTable`` and ``StoreError``.
    """
    table = yield from shown_table(location, shown)
    place = location + table.metadata["location"].removeprefix(uri_of(location))
    updates = yield from _updates(client, table, place, number)
    return TableRequest(location, requirements_of(table), updates)


def _updates(
    client: Client, table: IcebergTable, place: str, number: int
) -> Program[tuple[dict[str, Any], ...]]:
    """Add a row; or write a file again, and the row with it. ``place``: where new files lie."""
    row = {"id": number, "balance": 0, "items": ""}
    files = sorted(table.files)[:1] if client.random.random() < 0.5 else []
    kept: list[Row] = []
    if files:
        kept = yield from read_rows(only(table, files))
    there = IcebergTable(place, table.version, table.metadata)
    added = yield from write_rows(client, there, [*kept, row])
    operation = "overwrite" if files else "append"
    metadata = yield from with_snapshot(client, table, operation, added, files, place=place)
    snapshot = metadata["snapshots"][-1]
    main = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot["snapshot-id"]}
    return (
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", **main},
    )

"""Let deltalake read and write the tables on which LakeVilla transacts: it sees all commits."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

import lakevilla as lv
from lakevilla.engines.base import TableInput
from tests.interop.delta.readers import duckdb_rows
from tests.interop.delta.test_reading_deltalake import all_types
from tests.support.inside import executor, inside
from tests.support.places import Place, fill, make_place
from tests.support.tables import accounts, in_order, values


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


def rows_at(lake: lv.Lake, table: str, version: int) -> list[dict[str, Any]]:
    """Return a version as LakeVilla reads the log."""
    context, run = inside(lake).context, inside(lake).run
    snapshot = run(context.formats["delta"].open_at(table, table, version))
    files = run(snapshot.files())
    scan = run(context.engine.scan(TableInput(snapshot.layout, files), None, None))
    return in_order(scan.read_all())


def same_for_all(place: Place, table: str, order: str = "id") -> list[dict[str, Any]]:
    """Return the rows, on which three readers agree; check all versions, on which two readers
    agree.
    """
    with place.connect() as lake:
        ours = in_order(lake.snapshot().read(table))
        assert ours == place.seen(table)
        theirs = pa.Table.from_pylist(duckdb_rows(place.uri(table), order)) if ours else None
        assert theirs is None or in_order(theirs) == ours
        for version in range(place.delta(table).version() + 1):
            assert rows_at(lake, table, version) == place.seen(table, version), version
    return ours


def persist(work: Callable[[], object]) -> None:
    """Commit as a deltalake user does, again after each lost race."""
    for _ in range(50):
        try:
            work()
        except CommitFailedError:
            continue
        return
    raise AssertionError("deltalake lost fifty times in a row")


def test_a_commit_of_deltalake_is_visible_to_the_next_transaction(place: Place) -> None:
    fill(place, {"bank": accounts(4)})

    def balances(lake: lv.Lake) -> dict[int, int]:
        with lake.transaction(read_only=True) as txn:
            rows = txn.read("bank").to_pylist()
        return {row["id"]: row["balance"] for row in rows}

    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.update("bank", {"balance": "balance + 1"}, where="id = 0")
        place.write("bank", [{"id": 4, "balance": 4}])
        assert balances(lake) == {0: 101, 1: 100, 2: 100, 3: 100, 4: 4}
        place.delta("bank").update(updates={"balance": "7"}, predicate="id = 1")
        assert balances(lake)[1] == 7
        place.delta("bank").delete("id = 2")
        assert 2 not in balances(lake)
        rows = pa.table({"id": [3, 9], "balance": [33, 99]})
        merge = place.delta("bank").merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        assert balances(lake) == {0: 101, 1: 7, 3: 33, 4: 4, 9: 99}
        place.delta("bank").optimize.compact()
        place.delta("bank").create_checkpoint()
        assert balances(lake) == {0: 101, 1: 7, 3: 33, 4: 4, 9: 99}
        with lake.transaction() as txn:
            txn.update("bank", {"balance": "balance * 2"}, where="true")
        assert balances(lake) == {0: 202, 1: 14, 3: 66, 4: 8, 9: 198}
        place.delta("bank").restore(0)
        assert balances(lake) == {0: 100, 1: 100, 2: 100, 3: 100}
    same_for_all(place, "bank")


def test_no_row_is_lost_or_doubled_while_deltalake_and_lakevilla_write_concurrently(
    place: Place,
) -> None:
    fill(place, {"t": accounts(2), "ledger": accounts(1)})
    rounds = 5

    def deltalake_appends() -> None:
        for number in range(rounds):
            persist(lambda n=number: place.write("t", [{"id": 1000 + n, "balance": 0}]))  # type: ignore[misc]

    def deltalake_changes() -> None:
        for number in range(rounds):
            persist(
                lambda: place.delta("t").update(
                    updates={"balance": "balance + 1"}, predicate="id = 0"
                )
            )
            row = pa.table({"id": [3000 + number], "balance": [0]})
            persist(
                lambda r=row: (
                    place.delta("t")  # type: ignore[misc]
                    .merge(r, "t.id = s.id", source_alias="s", target_alias="t")
                    .when_not_matched_insert_all()
                    .execute()
                )
            )
            if number % 2:
                persist(lambda n=number: place.delta("t").delete(f"id = {2999 + n}"))  # type: ignore[misc]

    def deltalake_tidies() -> None:
        for _ in range(rounds):
            persist(lambda: place.delta("t").optimize.compact())
            place.delta("t").create_checkpoint()
            place.delta("t").vacuum(dry_run=False)

    def lakevilla_transacts(start: int) -> None:
        def work(txn: lv.Transaction, number: int) -> None:
            txn.update("t", {"balance": "balance + 1"}, where="id = 1")
            txn.append("t", [{"id": start + number, "balance": 0}])
            txn.append("ledger", [{"id": start + number, "balance": 0}])

        with place.connect() as lake:
            for number in range(rounds):
                with contextlib.suppress(lv.ForeignConflict):  # committed, and reconciled
                    lake.run(work, number, attempts=100)

    with ThreadPoolExecutor(5) as pool:
        jobs: list[Callable[[], None]] = [
            deltalake_appends,
            deltalake_changes,
            deltalake_tidies,
            lambda: lakevilla_transacts(5000),
            lambda: lakevilla_transacts(6000),
        ]
        for end in [pool.submit(job) for job in jobs]:
            end.result()
    with place.connect() as lake:
        assert lake.recover().ok
    rows = same_for_all(place, "t")
    ours = {start + n for start in (5000, 6000) for n in range(rounds)}
    theirs = {1000 + n for n in range(rounds)} | {3000 + n for n in range(rounds)}
    deleted = {2999 + n for n in range(rounds) if n % 2}
    ids = [row["id"] for row in rows]
    assert len(ids) == len(set(ids))
    assert set(ids) == {0, 1} | ours | theirs - deleted
    balance = {row["id"]: row["balance"] for row in rows}
    assert balance[0] == 100 + rounds, "each update by deltalake, once"
    assert balance[1] == 100 + 2 * rounds, "each update by lakevilla, once"
    assert set(values(place.delta("ledger").to_pyarrow_table())) == ours | {0}


def test_a_guarded_table_is_refused_to_other_writers_and_read_by_all(place: Place) -> None:
    fill(place, {"bank": accounts(3)})
    with place.connect() as lake:
        assert not lake.capabilities("bank").guarded
        lake.guard("bank")
        assert lake.table("bank").guarded
        assert lake.capabilities("bank").other_writers == "refused"
        with pytest.raises(DeltaError, match="lakevilla"):
            place.write("bank", accounts(1))
        with pytest.raises(DeltaError, match="lakevilla"):
            place.delta("bank").delete("id = 1")
        with pytest.raises(DeltaError, match="lakevilla"):
            place.delta("bank").update(updates={"balance": "0"}, predicate="id = 1")
        with lake.transaction() as txn:
            txn.update("bank", {"balance": "5"}, where="id = 1")
        with lake.transaction(lv.Feature.NONE) as txn:
            txn.append("bank", [{"id": 7, "balance": 7}])
            assert executor(txn).state.through_head
        expected = [{"id": 0, "balance": 100}, {"id": 1, "balance": 5}]
        assert same_for_all(place, "bank")[:2] == expected
        # Other clients may still maintain the table, without harm (hazard 4).
        place.delta("bank").create_checkpoint()
        place.delta("bank").vacuum(dry_run=False)
        # deltalake logs a VACUUM that deletes something
        with contextlib.suppress(CommitFailedError):
            place.delta("bank").vacuum(
                retention_hours=0, enforce_retention_duration=False, dry_run=False
            )
        with place.connect() as fresh:
            assert values(fresh.snapshot().read("bank")) == [0, 1, 2, 7]
        with lake.transaction() as txn:
            txn.delete("bank", where="id = 7")
        lake.unguard("bank")
        assert not lake.table("bank").guarded
    place.write("bank", [{"id": 8, "balance": 8}])
    assert [row["id"] for row in place.seen("bank")] == [0, 1, 2, 8]


def stored(table: DeltaTable) -> list[dict[str, Any]]:
    """Return the log's statements on each file except names and times."""
    kept = []
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        told = {k: v for k, v in action.items() if k.split(".")[0] in _TOLD}
        kept.append({k: told[k] for k in sorted(told) if told[k] is not None})
    return sorted(kept, key=repr)


def to_the_millisecond(value: object) -> object:
    """Cut timestamps in statistics to milliseconds, as deltalake does and the protocol allows."""
    if not isinstance(value, dt.datetime):
        return value
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


_TOLD = ("partition", "num_records", "null_count", "min", "max")


def test_statistics_and_rows_of_every_type_equal_those_of_deltalake(place: Place) -> None:
    rows = all_types()
    write_deltalake(place.uri("theirs"), rows)
    write_deltalake(place.uri("ours"), rows.schema.empty_table())
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.append("ours", rows)
        with lake.transaction() as txn:
            txn.create_table("made", rows)
        assert lake.snapshot().read("ours").schema.equals(lake.snapshot().read("theirs").schema)
    theirs, ours, made = (stored(place.delta(name)) for name in ("theirs", "ours", "made"))
    assert len(theirs) == len(ours) == 1
    assert ours == made
    for name, value in theirs[0].items():
        if name in ours[0]:
            assert to_the_millisecond(ours[0][name]) == to_the_millisecond(value), name
    missing = set(theirs[0]) - set(ours[0])
    assert {name for name in missing if not name.startswith(("min.", "max."))} == set()
    for name in ("ours", "made"):
        mine = place.delta(name).to_pyarrow_table().sort_by("id").drop_columns(["d"])
        assert mine.equals(
            place.delta("theirs").to_pyarrow_table().sort_by("id").drop_columns(["d"])
        )
        assert repr(duckdb_rows(place.uri(name))) == repr(duckdb_rows(place.uri("theirs")))


PARTITIONS: dict[str, list[Any]] = {
    "text": ["a b", "ü:/x%", None, "100%25", "#?&+", "x'y\"z", "c=[d]"],
    "day": [dt.date(2024, 2, 29), None, dt.date(1969, 12, 31)],
    "number": [-1, None, 2**40],
    "flag": [True, None, False],
    "moment": [dt.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC), None],
    "local": [dt.datetime(2024, 5, 6, 7, 8, 9, 120000), None],
}


@pytest.mark.parametrize("column", PARTITIONS)
def test_partition_values_equal_those_of_deltalake(place: Place, column: str) -> None:
    found = PARTITIONS[column]
    kinds = {"moment": pa.timestamp("us", "UTC"), "local": pa.timestamp("us")}
    rows = pa.table({"p": pa.array(found, kinds.get(column)), "id": list(range(len(found)))})
    write_deltalake(place.uri("theirs"), rows, partition_by=["p"])
    with place.connect() as lake:
        lake.create_table("ours", rows, partition_by=["p"])
        with lake.transaction() as txn:
            txn.update("ours", {"id": "id + 0"}, where="true")
    expected = in_order(place.delta("theirs").to_pyarrow_table())
    assert in_order(place.delta("ours").to_pyarrow_table()) == expected
    assert same_for_all(place, "ours") == expected
    parts = [
        sorted((a["partition.p"] for a in stored_partitions(place, name)), key=repr)
        for name in ("ours", "theirs")
    ]
    assert parts[0] == parts[1]


def stored_partitions(place: Place, name: str) -> list[dict[str, Any]]:
    actions = pa.table(place.delta(name).get_add_actions(flatten=True)).to_pylist()
    return [action for action in actions if "partition.p" in action]


def test_log_entries_have_the_parts_that_deltalake_shows_as_history(place: Place) -> None:
    fill(place, {"bank": accounts(4)})
    with place.connect() as lake:
        with lake.transaction(metadata={"job": "nightly"}) as txn:
            txn.append("bank", [{"id": 8, "balance": 8}])
            first = txn.id
        with lake.transaction() as txn:
            txn.update("bank", {"balance": "0"}, where="id = 1")
        with lake.transaction() as txn:
            txn.delete("bank", where="id = 8")
        with lake.transaction() as txn:
            txn.upsert("bank", [{"id": 1, "balance": 1}, {"id": 9, "balance": 9}], keys="id")
        with lake.transaction() as txn:
            txn.read("bank")
            txn.append("bank", [{"id": 10, "balance": 8}])
            txn.update("bank", {"balance": "0"}, where="id = 10")
    told = sorted(place.delta("bank").history(), key=lambda entry: entry["version"])[1:]
    assert [entry["operation"] for entry in told] == [
        "WRITE",
        "UPDATE",
        "DELETE",
        "MERGE",
        "TRANSACTION",
    ]
    assert told[0]["operationParameters"] == {"mode": "Append"}
    assert [entry.get("isBlindAppend") for entry in told] == [True, False, False, False, False]
    assert all("lakevilla" in entry["engineInfo"].lower() for entry in told)
    assert all(abs(e["timestamp"] / 1000 - dt.datetime.now().timestamp()) < 300 for e in told)
    assert "id" in json.dumps(told[1]["operationParameters"]["predicate"])
    assert "nightly" in json.dumps(told[0])
    assert first in json.dumps(told[0])
    metrics = [entry["operationMetrics"] for entry in told]
    assert int(metrics[1]["num_updated_rows"]) == 1
    assert int(metrics[2]["num_deleted_rows"]) == 1
    assert (int(metrics[3]["num_updated_rows"]), int(metrics[3]["num_inserted_rows"])) == (1, 1)


def test_tables_on_a_server_are_read_by_deltalake_and_its_tables_by_lakevilla(
    request: pytest.FixtureRequest,
) -> None:
    place = make_place("remote", request)
    fill(place, {"x": accounts(3), "y": accounts(3)})
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.update("x", {"balance": "balance - 5"}, where="id = 1")
            txn.update("y", {"balance": "balance + 5"}, where="id = 1")
        place.delta("x").update(updates={"balance": "1"}, predicate="id = 0")
        place.delta("x").create_checkpoint()
        with lake.transaction() as txn:
            txn.update("x", {"balance": "balance + 1"}, where="id = 0")
        assert in_order(lake.snapshot().read("x")) == place.seen("x")
    assert place.seen("x")[0] == {"id": 0, "balance": 2}
    assert place.seen("y")[1] == {"id": 1, "balance": 105}

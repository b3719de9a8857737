"""Numbers of requests that do not grow with a lake's history."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakevilla as lv
from lakevilla.api.client.client import LakeClient
from lakevilla.engines.duckdb.file_system import GivenFiles
from lakevilla.formats.delta import log, table_format
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.global_log import bases, head, leaves, repo
from lakevilla.global_log.refs import BaseRef
from lakevilla.lake import context as lake_context
from lakevilla.lake import row_changes, table_log
from lakevilla.lake.context import Context, Tail
from lakevilla.maintenance.recovery import checkpoint
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import Failure, ObjectInfo
from lakevilla.store.effects import Program
from lakevilla.store.runner import Requests
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.tables import accounts
from tests.support.traces import cost, steps


def append(lake: lv.Lake, features: lv.Feature, times: int) -> None:
    for _ in range(times):
        lake.run(lambda txn: txn.append("t", accounts(1)), features=features)


def upsert(rows: pa.Table, txn: lv.Transaction) -> None:
    txn.upsert("t", rows, keys="id")


def in_thread(work: Callable[[], object]) -> None:
    """Do it in a thread of its own: no transaction waits for another of its own thread."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def cold_read(place: Place) -> Requests:
    with place.connect() as lake:
        return cost(lake, lambda: lake.table("t").version)


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R], ids=["NONE", "R"])
def test_opening_a_table_costs_no_more_requests_after_many_commits_by_log_entry(
    local_place: Place, features: lv.Feature
) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        append(lake, features, 30)
        few = cold_read(local_place)
        append(lake, features, 100)
    many = cold_read(local_place)
    assert many.get <= few.get + 3  # a checkpoint and the pointer to it
    assert (many.put, many.list) == (few.put, few.list)


def test_a_cold_client_lists_the_part_of_a_log_that_it_reads(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_BEFORE", 20)
    listed: list[str] = []
    list_all = LakeStore.list

    def listing(self: LakeStore, *where: str | None) -> list[ObjectInfo] | Failure:
        found = list_all(self, *where)  # type: ignore[arg-type]
        assert not isinstance(found, Failure)
        listed.extend(info.key for info in found)
        return found

    monkeypatch.setattr(LakeStore, "list", listing)

    def counted(work: Callable[[lv.Lake], object]) -> tuple[int, Requests]:
        listed.clear()
        with local_place.connect() as lake:
            requests = cost(lake, lambda: work(lake))
        return len(listed), requests

    with local_place.connect() as lake:
        lake.create_table("t", accounts(1), format="delta")
        append(lake, lv.Feature.R | lv.Feature.I, 155)
    objects, requests = counted(lambda lake: lake.table("t").version)
    assert (objects <= 25, requests.list) == (True, 1)
    for version in (5, 60, 100, 140):
        objects, requests = counted(lambda lake, v=version: lake.snapshot(version=v).versions)
        assert (objects <= 60, requests.list) == (True, 1), "the old state alone"
    with local_place.connect() as lake:
        assert lake.table("t").read(version=100).num_rows == 101


def test_vacuum_lists_the_log_of_a_table_once_however_many_refs_keep_versions_of_it(
    local_place: Place,
) -> None:
    def vacuumed(refs: int) -> Requests:
        with local_place.connect() as lake:
            for _ in range(refs):
                append(lake, lv.Feature.R | lv.Feature.I, 1)
                lake.tag(f"v{lake.table('t').version}")
        with local_place.connect() as lake:
            return cost(lake, lambda: lake.table("t").vacuum())

    with local_place.connect() as lake:
        lake.create_table("t", accounts(1), format="delta")
    few, many = vacuumed(2), vacuumed(25)
    assert many.list <= few.list + 1
    assert many.get <= few.get + 2 * 25, "a log entry for each ref, checkpoints, and new bases"


@pytest.mark.parametrize("work", ["vacuum", "doctor", "gc"])
def test_a_cold_client_reads_few_objects_however_many_tags_there_are(
    local_place: Place, work: str
) -> None:
    def cold(tags: range) -> Requests:
        with local_place.connect() as lake:
            for number in tags:
                lake.tag(f"v{number}")
        with local_place.connect() as lake, inside(lake).requests.counting() as requests:
            match work:
                case "vacuum":
                    lake.table("t").vacuum()
                case "doctor":
                    assert lake.doctor().ok
                case "gc":
                    lake.gc(dry_run=True)
        return requests

    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
    few, many = cold(range(4)), cold(range(4, 80))
    assert many.get - few.get < bases.COPIED_TOGETHER, "bases that have no copy yet"
    assert many.list <= few.list + (work == "doctor"), "the doctor lists the bases"


def test_a_second_vacuum_reads_no_state_of_refs_again(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    live = table_format.live_objects

    def live_objects(snapshots: Sequence[DeltaSnapshot]) -> Program[set[str]]:
        computed.append(len(snapshots))
        return live(snapshots)

    monkeypatch.setattr(table_format, "live_objects", live_objects)
    with local_place.connect() as lake:
        lake.create_table("t", accounts(1), format="delta")
        for number in range(5):
            lake.tag(f"v{number}")
            append(lake, lv.Feature.R | lv.Feature.I, 1)
        for _ in range(3):
            lake.table("t").vacuum()
        assert computed == [5]
        lake.tag("another")
        lake.table("t").vacuum()
        assert computed == [5, 6]


def test_vacuums_of_several_tables_decode_the_copy_of_a_base_once(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []
    copied_base = bases.copied_base

    def counted(copies: Mapping[str, msgspec.Raw], ref: BaseRef) -> bases.Base | None:
        found = copied_base(copies, ref)
        decoded.extend([] if found is None else [found.name])
        return found

    monkeypatch.setattr(bases, "copied_base", counted)
    with local_place.connect() as lake:
        for name in ("t", "u", "v"):
            lake.create_table(name, accounts(1))
        for number in range(bases.COPIED_TOGETHER):
            lake.tag(f"v{number}")
        for name in ("t", "u", "v"):
            lake.table(name).vacuum()
    assert sorted(decoded) == sorted(f"v{number}" for number in range(bases.COPIED_TOGETHER))


def test_doctor_lists_the_objects_of_branches_once_however_many_there_are(
    local_place: Place,
) -> None:
    def examined(branches: range) -> Requests:
        with local_place.connect() as lake:
            for number in branches:
                append(lake.on(lake.branch(f"b{number}").name), lv.Feature.R | lv.Feature.I, 1)
        with local_place.connect() as lake:
            assert lake.doctor().ok
            return cost(lake, lake.doctor)

    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
    few, many = examined(range(2)), examined(range(2, 12))
    assert many.list == few.list
    assert many.get <= few.get + 3 * 10, "a HEAD, a commit object and a new base for each branch"


def test_a_run_of_maintain_looks_once_for_signs_of_an_older_head(local_place: Place) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        lake.maintain()
        append(lake, lv.Feature.R | lv.Feature.I, 1)
        lake.close()
        found = steps(lake, lake.maintain)
    rounds = [[key for verb, key in one if verb == "list"] for one in found]
    assert sum("_lakevilla/commits" in one for one in rounds) == 1
    assert sum(len(one) for one in rounds) <= 8


@pytest.mark.parametrize("tables", [2, 40])
def test_maintain_checks_only_the_tables_that_were_committed_to(
    local_place: Place, tables: int
) -> None:
    with local_place.connect() as lake:
        for number in range(tables):
            lake.create_table(f"t{number}", accounts(1))
        lake.create_table("t", accounts(1))
        lake.maintain()
        append(lake, lv.Feature.R | lv.Feature.I, 1)
        lake.close()
        assert cost(lake, lake.maintain).total <= 50


def test_maintain_fetches_only_the_leaves_of_tables_that_were_committed_to(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaves, "INLINE_BYTES", 500)
    monkeypatch.setattr(leaves, "LEAF_BYTES", 500)
    with local_place.connect() as lake:
        for number in range(60):
            lake.create_table(f"t{number}", accounts(1))
        lake.maintain()
        lake.run(lambda txn: txn.append("t7", accounts(1)))
        lake.close()
    with local_place.connect(settings=lv.Settings(lease_seconds=0.5)) as lake:
        assert cost(lake, lake.maintain).total <= 50
        held = inside(lake).context.held
        assert held is not None
        tables = held.head.tables
        assert len(tables.refs) > 15
        assert len(tables.missing()) >= len(tables.refs) - 4
        with (
            local_place.connect() as other,
            other.transaction(features=lv.Feature.R | lv.Feature.CT) as txn,
        ):
            txn.delete("t20", where="id = 0")  # takes a place in the table's queue
            txn.save()  # the transaction's record names the table
            lake.run(lambda txn: txn.append("t7", accounts(1)))
            assert lake.maintain().ok
        assert lake.read("t20").num_rows == 0


def test_a_state_of_many_changes_is_read_from_the_checkpoint_that_was_written_of_it(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_format, "_HELD_CHANGES", 5)
    with local_place.connect() as lake:
        lake.create_table("t", accounts(4), format="delta")
        for number in range(1, 36):
            lake.run(partial(upsert, accounts(number)))
            if number % 3 == 0:
                lake.run(lambda txn: txn.delete("t", where="id = 1"))
            lake.close()
        snapshot = inside(lake).context.tails["t"].snapshot
        assert isinstance(snapshot, DeltaSnapshot)
        assert snapshot.tail.fold().count < 40
        assert snapshot.checkpoint_version >= snapshot.version - 10
        held = sorted(map(repr, lake.read("t").to_pylist()))
    with local_place.connect() as lake:
        assert sorted(map(repr, lake.read("t").to_pylist())) == held
    rows = DeltaTable(f"{local_place.root}/t").to_pyarrow_table().to_pylist()
    assert sorted(map(repr, rows)) == held


def test_the_states_of_an_iceberg_table_that_a_client_keeps_have_a_limit_in_bytes(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_context, "_HELD_BYTES", 20_000)
    with local_place.connect() as lake:
        lake.create_table("t", accounts(1), format="iceberg")
        append(lake, lv.Feature.R | lv.Feature.I, 30)
        tail = inside(lake).context.tails["t"]
        held = sum(one.held_bytes for one in tail.snapshots.values())
        assert held <= 20_000 + 2 * tail.snapshot.held_bytes
        assert [v for v, one in tail.entries.items() if one.document is not None] == [tail.tip]
        assert lake.table("t").read(version=3).num_rows == 4


@pytest.mark.parametrize("work", [lv.Lake.gc, lv.Lake.recover], ids=["gc", "recover"])
def test_the_commit_that_made_many_tables_is_read_once_and_not_for_each_of_them(
    local_place: Place, work: Callable[[lv.Lake], object]
) -> None:
    tables = 40
    with local_place.connect() as lake, lake.transaction() as txn:
        for number in range(tables):
            txn.create_table(f"t{number}", accounts(1))
    with local_place.connect() as lake:
        found = steps(lake, lambda: work(lake))
    commits = [key for one in found for what, key in one if what == "get" and "/commits/" in key]
    assert len(commits) <= 3, "once as a sign of an older HEAD, once as what is pending"


def test_an_old_version_of_an_iceberg_table_is_read_from_its_own_metadata_file(
    local_place: Place,
) -> None:
    few_named = {"write.metadata.previous-versions-max": "3"}
    with local_place.connect() as lake:
        lake.create_table("t", accounts(1), format="iceberg", properties=few_named)
        append(lake, lv.Feature.R | lv.Feature.I, 20)
    with local_place.connect() as lake:
        found = steps(lake, lambda: lake.table("t").read(version=5).num_rows)
    read = [key for one in found for _, key in one if key.endswith("metadata.json")]
    assert len(read) == 2, "that of the newest version, and that of version 5"


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a page have two commits, and a block four pages, so that a history soon has many."""
    monkeypatch.setattr(head, "PAGE_LENGTH", 2)
    monkeypatch.setattr(head, "COMMITS_IN_HEAD", 4)
    monkeypatch.setattr(head, "PAGES_IN_BLOCK", 4)


def rounds_of_pages(place: Place, work: Callable[[lv.Lake], object]) -> list[int]:
    """Return the numbers of pages that a client reads that has read nothing before, by round."""
    with place.connect() as lake:
        found = steps(lake, lambda: work(lake))
    pages = [sum("/pages/" in key for _, key in one) for one in found]
    return [number for number in pages if number]


def test_a_cold_snapshot_of_any_old_version_reads_as_many_pages_as_blocks_have_levels(
    local_place: Place, short_pages: None
) -> None:
    used = {"t": 1, "rare": 1}
    rows: dict[int, dict[str, int]] = {}
    with local_place.connect() as lake:
        for table in used:
            lake.create_table(table, accounts(1))
        for number in range(75):
            for table in ("t", "rare") if number % 25 == 10 else ("t",):
                lake.run(lambda txn, name=table: txn.append(name, accounts(1)))
                used[table] += 1
                rows[lake.snapshot().version] = dict(used)
    for version in list(rows)[::6]:
        for table, number in rows[version].items():

            def read(lake: lv.Lake, at: int = version, name: str = table) -> int:
                return lake.snapshot(version=at).read(name).num_rows

            # Three levels; the table may have been pending two pages before.
            assert sum(rounds_of_pages(local_place, read)) <= 5, (version, table)
            with local_place.connect() as lake:
                assert read(lake) == number
        bound = partial(lv.Lake.snapshot, version=version)
        assert sum(rounds_of_pages(local_place, bound)) <= 3


@pytest.mark.parametrize(
    ("work", "times"),
    [
        (lambda lake: lake.history(limit=70), 1),
        (lambda lake: list(lake.changes(3)), 1),
        (lambda lake: lake.snapshot().changes("t", 3), 2),  # the page of version 3, then the others
        (lambda lake: lake.outcome("01977455-36d3-757d-ab93-e8e5b0000000"), 1),
    ],
    ids=["history", "feed", "changes", "outcome"],
)
def test_a_long_history_is_read_in_as_many_rounds_as_blocks_have_levels(
    local_place: Place, short_pages: None, work: Callable[[lv.Lake], object], times: int
) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        append(lake, lv.Feature.R | lv.Feature.I, 75)
    found = rounds_of_pages(local_place, work)
    assert len(found) <= 3 * times
    assert sum(found) >= 30, "each page once"


def test_a_background_thread_that_is_late_writes_only_the_newest_checkpoint(
    local_place: Place,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Program[object]:
        yield from ()
        begun.set()
        go_on.wait()
        return None

    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        inside(lake).client._soon(slow)
        begun.wait()
        append(lake, lv.Feature.NONE, 310)
        go_on.set()
    entries = Path(local_place.root) / "t" / "_delta_log"
    assert [path.name for path in entries.glob("*.checkpoint.parquet")] == [
        f"{310:020}.checkpoint.parquet"
    ]


def test_a_select_of_a_transaction_opens_no_more_files_after_many_appends(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = 0
    open_file = GivenFiles.open

    def counting(self: GivenFiles, path: str, mode: str = "rb", **options: Any) -> object:
        nonlocal opened
        opened += 1
        return open_file(self, path, mode, **options)

    monkeypatch.setattr(GivenFiles, "open", counting)
    with place.connect() as lake:
        lake.create_table("t", accounts(1))
        with lake.transaction() as txn:

            def pair() -> tuple[int, Requests]:
                before = opened
                txn.append("t", accounts(1))
                requests = cost(lake, lambda: txn.sql("SELECT sum(balance) FROM t"))
                return opened - before, requests

            for _ in range(5):
                pair()
            few = pair()
            for _ in range(25):
                pair()
            assert pair() == few


def test_checkpoints_catch_up_with_commits_by_log_entry_that_have_outrun_them(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process holds the newest 160 versions; the checkpoint of the tenth was due long ago."""
    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        monkeypatch.setattr(LakeClient, "checkpoint_soon", lambda self: None)
        append(lake, lv.Feature.NONE, 195)
        client = inside(lake)
        due = client.context.checkpoints_due.popleft()
        spent = cost(lake, lambda: client.run(checkpoint(client.context, *due)))
    assert due == ("t", 10)
    entries = Path(local_place.root, "t", "_delta_log")
    assert [file.name for file in entries.glob("*.checkpoint.parquet")] == [
        f"{190:020}.checkpoint.parquet"
    ]
    assert spent.list == 0
    assert spent.get <= 2, "HEAD and _last_checkpoint"


def test_a_key_that_has_committed_is_found_by_as_many_requests_after_many_commits(
    local_place: Place, short_pages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repo, "_FIRST_REACH", 2)

    def repeated(key: str | tuple[str, int]) -> int:
        with local_place.connect() as lake:
            used = partial(lake.run, lambda txn: txn.append("t", accounts(1)), idempotency_key=key)
            return cost(lake, used).get

    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        for key in ("once", ("stream", 1)):
            lake.run(lambda txn: txn.append("t", accounts(1)), idempotency_key=key)
        append(lake, lv.Feature.R | lv.Feature.I, 20)
    few = repeated("once"), repeated(("stream", 1))
    with local_place.connect() as lake:
        append(lake, lv.Feature.R | lv.Feature.I, 150)
    many = repeated("once"), repeated(("stream", 1))
    assert max(many) <= max(few) + 3, "a page, and a block's end for each level"
    with local_place.connect() as lake:
        assert lake.table("t").read().num_rows == 173


def test_gc_reads_only_keys_with_versions_and_many_at_once(local_place: Place) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        for number in range(70):
            key = f"plain {number}" if number % 2 else (f"stream {number}", 1)
            lake.run(lambda txn: txn.append("t", accounts(1)), idempotency_key=key)
    with local_place.connect() as lake:
        found = [sum("/keys/" in key for _, key in one) for one in steps(lake, lake.gc)]
    # The keys with versions, and their replacements.
    assert sum(found) == 35 + 35
    assert len([number for number in found if number]) <= 2


def test_a_waiting_transaction_reads_the_records_of_the_front_of_its_queue_alone(
    local_place: Place,
) -> None:
    queued = lv.Feature.R | lv.Feature.CT | lv.Feature.I
    with local_place.connect() as others, local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        ahead = [others.transaction(queued) for _ in range(28)]

        def take_places() -> None:
            for txn in ahead:
                txn.update("t", {"balance": "balance + 1"}, where="id = 0")

        in_thread(take_places)
        waiter = lake.transaction(queued, wait_timeout_seconds=0.5)
        waiter.update("t", {"balance": "balance + 2"}, where="id = 0")
        read = {
            key
            for one in steps(lake, waiter.commit)
            for verb, key in one
            if verb == "get" and "/txns/" in key and waiter.id not in key
        }
        assert len(read) == 24 + 1, "the front, and the transaction right before it"
        in_thread(lambda: [txn.abort() for txn in ahead])
        assert lake.read("t")["balance"].to_pylist() == [102]


def test_gc_does_not_read_the_log_of_a_table_that_still_has_all_of_its_files(
    local_place: Place,
) -> None:
    def collected() -> Requests:
        with local_place.connect(settings=lv.Settings(max_age_seconds=0)) as lake:
            with inside(lake).requests.counting() as requests:
                assert lake.gc().ok
            return requests

    with local_place.connect() as lake:
        lake.create_table("t", accounts(1), format="delta")
        append(lake, lv.Feature.R | lv.Feature.I, 12)
    collected()
    few = collected()
    with local_place.connect() as lake:
        append(lake, lv.Feature.R | lv.Feature.I, 60)
    collected()
    assert collected().get <= few.get + 1


@pytest.mark.parametrize("features", [lv.Feature.R | lv.Feature.I, lv.Feature.NONE])
def test_a_client_that_is_far_behind_opens_a_log_again_and_reads_no_entry_in_between(
    place: Place, monkeypatch: pytest.MonkeyPatch, features: lv.Feature
) -> None:
    monkeypatch.setattr(table_log, "_FAR", 8)
    with place.connect() as lake:
        lake.create_table("t", accounts(1), format=place.format)
        costs = []
        for number in (20, 60):
            assert lake.table("t").read().num_rows
            with place.connect() as other:
                append(other, features, number)
            costs.append(cost(lake, lambda: lake.table("t").version))
        few, many = costs
        assert many.get <= few.get + 19, "the entries above the other's last checkpoint"
        assert lake.table("t").read().num_rows == 81
        append(lake, lv.Feature.R | lv.Feature.I, 1)
    with place.connect() as lake:
        assert lake.table("t").read().num_rows == 82


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_an_append_reads_no_entry_between_its_state_and_the_newest(
    local_place: Place, monkeypatch: pytest.MonkeyPatch, format: Literal["delta", "iceberg"]
) -> None:
    read: list[int] = []
    entries_at = row_changes.entries_at

    def counted(context: Context, tail: Tail, versions: Sequence[int]) -> Program[list[Any]]:
        read.extend(versions)
        return entries_at(context, tail, versions)

    monkeypatch.setattr(row_changes, "entries_at", counted)
    with local_place.connect() as lake, local_place.connect() as other:
        lake.create_table("t", accounts(1), format=format)
        append(lake, lv.Feature.R | lv.Feature.I, 1)
        append(other, lv.Feature.NONE, 20)
        append(lake, lv.Feature.R | lv.Feature.I, 1)
        assert read == []
        append(other, lv.Feature.NONE, 3)
        lake.run(lambda txn: txn.update("t", {"balance": "balance + 1"}, where="true"))
        assert lake.table("t").read().num_rows == 26
        append(other, lv.Feature.NONE, 1)
        other.run(lambda txn: txn.alter("t", add_columns={"more": "int"}))
        append(lake, lv.Feature.R | lv.Feature.I, 1)
        assert lake.table("t").read()["more"].to_pylist() == [None] * 28


def _others(lake: lv.Lake, numbers: range) -> None:
    for number in numbers:
        rows = [{"id": number, "balance": 0}]
        lake.run(partial(lv.Transaction.append, table="t", data=rows))


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_transaction_that_is_open_for_many_commits_reads_no_entry_of_most_of_them(
    local_place: Place, monkeypatch: pytest.MonkeyPatch, format: Literal["delta", "iceberg"]
) -> None:
    monkeypatch.setattr(row_changes, "_MANY_ENTRIES", 8)
    monkeypatch.setattr(table_log, "_FAR", 8)
    monkeypatch.setattr(head, "PAGE_LENGTH", 10)
    monkeypatch.setattr(head, "COMMITS_IN_HEAD", 15)
    costs = []
    with local_place.connect() as lake, local_place.connect() as other:
        lake.create_table("t", accounts(5), format=format)
        for commits in (20, 60):
            txn = lake.transaction()
            txn.read("t", where="id = 1")
            txn.update("t", {"balance": "balance + 1"}, where="id = 1")
            _others(other, range(1000, 1000 + commits))
            costs.append(cost(lake, txn.commit))
        assert lake.table("t").read().num_rows == 85
    few, many = costs
    # A page of HEAD for ten commits; and a manifest for each commit, until a hundred are merged.
    assert many.get <= few.get + 5 + (40 if format == "iceberg" else 0)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_transaction_that_is_far_behind_sees_by_the_entries_that_rows_were_only_moved(
    local_place: Place, monkeypatch: pytest.MonkeyPatch, format: Literal["delta", "iceberg"]
) -> None:
    monkeypatch.setattr(row_changes, "_MANY_ENTRIES", 2)
    settings = lv.Settings(row_check_limit_bytes=0)
    with local_place.connect(settings=settings) as lake, local_place.connect() as other:
        lake.create_table("t", accounts(5), format=format)
        _others(other, range(100, 103))
        txn = lake.transaction()
        txn.read("t", where="id = 1")
        txn.append("t", [{"id": 500, "balance": 0}])
        other.table("t").optimize()
        _others(other, range(1000, 1006))
        monkeypatch.setattr(table_log, "_FAR", 2)
        txn.commit()
        assert lake.table("t").read().num_rows == 15


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_transaction_that_is_far_behind_finds_that_a_row_which_it_has_read_was_changed(
    local_place: Place, monkeypatch: pytest.MonkeyPatch, format: Literal["delta", "iceberg"]
) -> None:
    monkeypatch.setattr(row_changes, "_MANY_ENTRIES", 2)
    monkeypatch.setattr(table_log, "_FAR", 2)
    with local_place.connect() as lake, local_place.connect() as other:
        lake.create_table("t", accounts(5), format=format)
        txn = lake.transaction()
        txn.read("t", where="id = 1")
        txn.append("t", [{"id": 500, "balance": 0}])
        other.run(lambda txn: txn.update("t", {"balance": "balance + 1"}, where="id = 1"))
        _others(other, range(1000, 1020))
        with pytest.raises(lv.ConflictError, match="changed meanwhile"):
            txn.commit()


def test_a_cold_client_that_reads_one_old_version_does_not_read_the_newest(
    local_place: Place,
) -> None:
    def opened(lake: lv.Lake, *versions: int) -> list[str]:
        """Return the requests for the table's log that old versions take."""

        def work() -> None:
            for one in versions:
                assert lake.snapshot(version=one).versions

        found = [request for one in steps(lake, work) for request in one]
        return [f"{kind} {key}" for kind, key in found if "_delta_log" in key]

    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        first = lake.snapshot().version
        append(lake, lv.Feature.R | lv.Feature.I, 58)
        last = lake.snapshot().version
    with local_place.connect() as lake:
        once = opened(lake, first + 12)
        assert len(once) == 5, "the pointer, a LIST, a checkpoint, and two entries above it"
        assert opened(lake, first + 12) == [], "the client has kept the state"
        assert lake.snapshot(version=first + 12).read("t").num_rows == 13
        assert len(opened(lake, first + 24)) == 2 + 5 + 9, "the newest, too, at version 58"
        assert opened(lake, first + 12, first + 24) == []
        assert lake.snapshot(version=first + 24).read("t").num_rows == 25
        assert lake.snapshot(version=last).read("t").num_rows == 59
        append(lake, lv.Feature.R | lv.Feature.I, 1)
        assert lake.table("t").read().num_rows == 60


def test_a_table_that_another_client_has_made_again_since_an_old_version_was_read_is_named(
    local_place: Place,
) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        version = lake.snapshot().version
        append(lake, lv.Feature.R | lv.Feature.I, 2)
    with local_place.connect() as reader:
        assert set(reader.snapshot(version=version).versions) == {"t"}
        shutil.rmtree(local_place.uri("t"))
        local_place.write("t", pa.table({"id": list(range(7))}))
        with pytest.raises(lv.LakeVillaError, match="table t is not kept as of global version"):
            reader.snapshot(version=version).read("t")

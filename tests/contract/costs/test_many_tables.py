"""Requests, memory and conflicts of a lake with so many tables that HEAD lists leaves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import lakevilla as lv
from bench.size.many_tables import (
    ROWS,
    commit_two,
    cost,
    lake_of,
    list_tables,
    newest,
    real_tables,
)
from lakevilla.global_log import leaves
from lakevilla.global_log.head import COMMITS_IN_HEAD
from lakevilla.store.runner import Requests
from tests.support.inside import executor
from tests.support.places import Place
from tests.support.stores import Later

COUNT = 300


@pytest.fixture
def small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set low limits, so that a few hundred tables are stored in leaves."""
    monkeypatch.setattr(leaves, "INLINE_BYTES", 2000)
    monkeypatch.setattr(leaves, "LEAF_BYTES", 2000)


@pytest.fixture
def lake(small_leaves: None, local_place: Place) -> Iterator[lv.Lake]:
    with lake_of(COUNT, local_place.root, commits=1) as lake:
        assert len(newest(lake).tables.refs) > 10
        yield lake


REAL = real_tables(COUNT)
PAIR = [REAL[2], REAL[7]]


def leaf_files(lake: lv.Lake) -> set[str]:
    root = Path(lake.root)
    return {str(p.relative_to(root)) for p in (root / "_lakevilla/leaves").glob("*.json")}


@pytest.mark.night
def test_100_000_tables_leave_head_small_and_cost_a_commit_two_puts(tmp_path: Path) -> None:
    with lake_of(10, str(tmp_path / "ten"), commits=3) as few:
        pair = real_tables(10)[2:4]
        commit_two(few, pair)
        ten = cost(few, lambda: commit_two(few, pair))
    # After 75 commits none of the measured ones writes a checkpoint, or a page of HEAD.
    with lake_of(100_000, str(tmp_path / "many"), commits=75) as many:
        tables = real_tables(100_000)
        pair = [tables[2], tables[7]]
        commit_two(many, pair)
        largest = 0
        for _ in range(3):
            requests = cost(many, lambda: commit_two(many, pair))
            head = newest(many)
            largest = max(largest, len(head.commits))
            body = Path(many.root, "_lakevilla/HEAD.json").read_bytes()
            assert len(body) <= 128 * 1024, len(head.commits)
            if head.page is None:
                assert requests == Requests(put=ten.put + 2, get=ten.get, list=ten.list)
        assert 80 < largest < COMMITS_IN_HEAD
        for ref in head.tables.refs:
            assert Path(many.root, ref.key).stat().st_size <= leaves.LEAF_BYTES
        with lv.connect(many.root) as other:
            txn = other.transaction()
            assert cost(other, executor(txn).state_of_lake) == Requests(get=1)
            txn.abort()


def test_a_transaction_is_opened_by_one_get_and_a_leaf_is_fetched_once(lake: lv.Lake) -> None:
    with lv.connect(lake.root) as other:
        with other.transaction() as txn:
            assert cost(other, executor(txn).state_of_lake) == Requests(get=1)
            first = cost(other, lambda: txn.read(REAL[5]))
        with other.transaction() as txn:
            assert txn.read(REAL[5]).num_rows == len(txn.read(REAL[5]))
        # A commit to other tables rewrites other leaves: this one is still cached.
        commit_two(lake, PAIR)
        with other.transaction() as txn:
            again = cost(other, lambda: txn.read(REAL[5]))
        assert first == Requests(get=2, list=1)  # the table's leaf and log
        assert again == Requests(get=2)  # HEAD, and the next entry of the log


def test_the_first_commit_to_two_tables_fetches_two_leaves_in_one_round(lake: lv.Lake) -> None:
    def appended(other: lv.Lake) -> None:
        with other.transaction() as txn:
            for table in PAIR:
                txn.append(table, ROWS)

    with lv.connect(lake.root) as other:
        appended(other)
        commit_two(lake, PAIR)  # a commit of another client: both leaves are new
        behind = cost(other, lambda: appended(other))
        warm = cost(other, lambda: appended(other))
    assert warm.put == behind.put == 2 * 2 + 2 + 2
    assert behind.get >= warm.get + 2


def test_tables_in_leaves_are_all_listed(lake: lv.Lake) -> None:
    with lv.connect(lake.root) as other:
        head = newest(other)
        txn = other.transaction(read_only=True)
        state = executor(txn).state_of_lake(whole=True)
        assert state is not None
        assert len(state.tables) == COUNT
        assert set(REAL) <= set(state.tables)
        txn.abort()
        assert head.tables.refs == state.tables.refs


def test_created_dropped_and_registered_tables_are_written_to_their_leaves(
    lake: lv.Lake, tmp_path: Path
) -> None:
    for name in ("aaa", "sales/region_00/orders_0000995", "zzz"):
        lake.create_table(name, ROWS)
        lake.drop_table(name)
        with lake.transaction() as txn, pytest.raises(lv.TableNotFound):
            txn.read(name)
        lake.register(name, name)
    with lv.connect(str(tmp_path / "elsewhere")) as far:
        far.create_table("t", ROWS)
        far.unregister("t")
    many = {f"far_{n:03}": str(tmp_path / "elsewhere" / "t") for n in range(60)}
    lake.register(many)
    assert newest(lake).names.refs
    with lv.connect(lake.root) as other:
        assert other.table("far_031").name == "far_031"
        with other.transaction() as txn:
            txn.append("far_007", ROWS)
        assert txn.result is not None
        assert txn.result.versions is not None
        with pytest.raises(lv.TableNotFound):
            other.table("far_999")
        other.unregister("far_007")
        with pytest.raises(lv.TableNotFound):
            other.table("far_007")
        assert other.table("far_008").name == "far_008"


def test_a_page_of_an_older_state_costs_the_requests_of_one_of_the_present(lake: lv.Lake) -> None:
    def second_page(first: lv.TablePage[lv.ListedTable]) -> tuple[Requests, list[str]]:
        with lv.connect(lake.root) as client:
            found: list[str] = []
            requests = cost(
                client,
                lambda: found.extend(
                    one.name for one in client.tables(limit=50, after=first.next, details=False)
                ),
            )
        return requests, found

    first = lake.tables(limit=50, details=False)
    present, names = second_page(first)
    lake.create_table("aa/made", ROWS)
    assert PAIR[0] in names
    lake.drop_table(PAIR[0])
    commit_two(lake, [REAL[3], PAIR[1]])
    older, again = second_page(first)
    assert again == names
    assert older.total == present.total, (older, present)
    assert older.list == 0


def test_an_older_version_is_read_from_its_own_leaves(lake: lv.Lake) -> None:
    before = newest(lake).sequence
    commit_two(lake, PAIR)
    with lake.transaction() as txn:
        now = len(txn.read(PAIR[0]))
    with lv.connect(lake.root) as other:
        assert len(other.snapshot(version=before).read(PAIR[0])) == now - len(ROWS)
        assert other.history(limit=1)[0].tables == tuple(sorted(PAIR))


def damaged(lake: lv.Lake, how: str) -> str:
    """Damage the leaf of a table, and return the leaf's key."""
    head = newest(lake)
    ref = head.tables.missing([REAL[5]])[0]
    path = Path(lake.root, ref.key)
    body = path.read_bytes()
    match how:
        case "missing":
            path.unlink()
        case "cut":
            path.write_bytes(body[: len(body) // 2])
        case "edited":
            path.write_bytes(body.replace(b'"published":0', b'"published":1', 1) + b" ")
        case "another":
            other = next(r for r in head.tables.refs if r != ref)
            path.write_bytes(Path(lake.root, other.key).read_bytes())
    return ref.key


@pytest.mark.parametrize("how", ["missing", "cut", "edited", "another"])
def test_the_error_for_a_leaf_that_does_not_match_its_hash_names_it(
    lake: lv.Lake, how: str
) -> None:
    key = damaged(lake, how)
    with lv.connect(lake.root) as other:
        with pytest.raises(lv.CorruptObject, match="restore it from a copy") as caught:
            other.table(REAL[5])
        assert caught.value.key == key
        with other.transaction() as txn, pytest.raises(lv.CorruptObject):
            txn.append(REAL[5], ROWS)
        # Tables of other leaves can still be written.
        commit_two(other, [REAL[0], REAL[9]])


@pytest.mark.night
def test_gc_keeps_leaves_of_older_heads_for_max_age_seconds_and_then_deletes_them(
    lake: lv.Lake,
) -> None:
    clock = Later()
    clock.of(lake)
    with lv.connect(lake.root) as other:
        clock.of(other)
        reader = other.transaction(read_only=True)
        executor(reader).state_of_lake()
        late = other.transaction(read_only=True)
        executor(late).state_of_lake()
        for _ in range(3):
            commit_two(lake, [REAL[5], REAL[6]])
        lake.gc()
        clock.ahead_seconds = 0.9 * 86400
        lake.gc()
        assert len(reader.read(REAL[5])) > 0
        clock.ahead_seconds = 2.0 * 86400
        told = lake.gc()
        gone = {f.key for f in told.findings if f.key and "/leaves/" in f.key}
        assert len(gone) >= 6
        named = {ref.key for ref in newest(lake).tables.refs}
        assert not gone & named
        # The transaction moves to the newest HEAD, as no table that it has read has changed.
        assert len(late.read(REAL[5])) > 0
        reader.abort()
        late.abort()
        clock.ahead_seconds = 4.0 * 86400
        lake.gc()
        lake.gc()
        left = leaf_files(lake)
        assert named <= left
        assert len(left - named) <= 3, "marks, and nothing else"


def test_a_reader_that_can_not_move_to_a_newer_head_fails_once_its_leaf_is_deleted(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lv.connect(lake.root) as other:
        late = other.transaction(read_only=True)
        assert len(late.read(REAL[0])) > 0
        commit_two(lake, [REAL[0], REAL[5]])
        with lv.connect(lake.root, settings=lv.Settings(max_age_seconds=0)) as hasty:
            hasty.gc()
        with pytest.raises(lv.VersionNotFound, match="replaced long ago"):
            late.read(REAL[5])


@pytest.mark.night
def test_a_dry_run_of_gc_deletes_and_marks_no_leaf(lake: lv.Lake) -> None:
    before = leaf_files(lake)
    with lv.connect(lake.root, settings=lv.Settings(max_age_seconds=0)) as hasty:
        told = hasty.gc(dry_run=True)
        assert leaf_files(lake) == before
        assert any(f.key is not None and "/leaves/" in f.key for f in told.findings)
        hasty.gc()
    named = {ref.key for ref in newest(lake).tables.refs}
    assert leaf_files(lake) == named


def test_a_lake_with_leaves_can_be_copied_and_adopted(lake: lv.Lake, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(lake.root, copy)
    with lv.connect(str(copy)) as other:
        other.doctor(adopt=True)
        state = newest(other)
        assert state.tables.refs
        assert state.root == other.root
        commit_two(other, PAIR)


def test_leaves_have_format_1_and_sorted_entries(lake: lv.Lake) -> None:
    for ref in newest(lake).tables.refs:
        leaf = msgspec.json.decode(Path(lake.root, ref.key).read_bytes())
        assert leaf["format"] == 1
        assert list(leaf["entries"]) == sorted(leaf["entries"])


@pytest.mark.night
def test_concurrent_clients_lose_no_commit_to_tables_of_the_same_leaf(
    small_leaves: None, place: Place
) -> None:
    """Two clients with two threads each write tables of the same leaf, on each store."""
    tables = [f"t{number}" for number in range(8)]
    with place.connect() as lake:
        for table in tables:
            lake.create_table(table, ROWS)
        list_tables(lake, COUNT)
        assert len(newest(lake).tables.refs) > 10

    def work(number: int) -> None:
        for turn in range(4):
            pair = [tables[(2 * number + turn) % 8], tables[(2 * number + turn + 3) % 8]]
            commit_two(clients[number % 2], pair)

    with place.connect() as one, place.connect() as two, ThreadPoolExecutor(4) as pool:
        clients = [one, two]
        list(pool.map(work, range(4)))
    with place.connect() as lake:
        with lake.transaction(read_only=True) as txn:
            found = [txn.read(table).num_rows for table in tables]
        assert sum(found) == len(ROWS) * (8 + 4 * 4 * 2)
        # The other tables are only entries in HEAD.
        wrong = {finding.table for finding in lake.doctor().findings}
        assert len(wrong) == COUNT
        assert not wrong & set(tables)


def test_many_tables_put_into_head_twice_are_stored_in_the_same_leaves(lake: lv.Lake) -> None:
    before = newest(lake).tables.refs
    assert list_tables(lake, COUNT).head.tables.refs == before

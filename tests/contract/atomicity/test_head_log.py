"""A real S3 endpoint that can create under a condition but not replace, by the public API."""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.api.client.client import _PROBED
from tests.contract.atomicity.conftest import Open
from tests.support.gateway import Flaw
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.search import how_many
from tests.support.tables import accounts, kinds, values

QUICK = lv.Settings(retry_limit=4, retry_base_seconds=0.01)
HEADS = "_lakevilla/heads/"


def transfer(lake: lv.Lake, amount: int, **options: Any) -> object:
    def move(txn: lv.Transaction) -> str:
        for table, sign in (("bank_x", "-"), ("bank_y", "+")):
            txn.update(table, {"balance": f"balance {sign} {amount}"}, where="id = 0")
        return "moved"

    return lake.run(move, attempts=50, **options)


def balance(place: Place, table: str) -> int:
    """Return the balance that deltalake reads."""
    [row] = [row for row in place.seen(table) if row["id"] == 0]
    found: int = row["balance"]
    return found


def make_banks(lake: lv.Lake) -> None:
    for table in ("bank_x", "bank_y"):
        lake.create_table(table, accounts(2))


def heads_in(lake: lv.Lake) -> list[str]:
    found = inside(lake).store.list("_lakevilla")
    assert isinstance(found, list)
    return sorted(info.key for info in found if info.key.startswith(HEADS))


@pytest.mark.parametrize("flaw", ["match refused", "match ignored"])
def test_the_probe_detects_a_store_that_can_not_replace_and_the_lake_works_there(
    behind: Open, flaw: Flaw
) -> None:
    place, gateway = behind(flaw)
    events: list[lv.Event] = []
    with place.connect(settings=QUICK, on_event=events.append) as lake:
        make_banks(lake)
        probed = gateway.conditional
        assert probed > 0
        transfer(lake, 10)
        lake.run(lambda txn: txn.append("bank_x", [{"id": 7, "balance": 1}]))
        assert lake.recover().ok
        assert lake.gc().ok
        assert lake.doctor().ok
        assert lake.metrics().values["lakevilla_tables"] == 2
        assert len(heads_in(lake)) >= 4
    assert gateway.conditional == probed, "nothing but the probe asks to replace"
    assert "unsafe_store" not in kinds(events)
    with place.connect(settings=QUICK) as fresh:
        assert values(fresh.snapshot().read("bank_x")) == [0, 1, 7]
        assert fresh.gc().ok
        transfer(fresh, 1)
    assert (balance(place, "bank_x"), balance(place, "bank_y")) == (89, 111)


@pytest.mark.night
def test_concurrent_writers_lose_no_commit(behind: Open) -> None:
    place, _ = behind("match refused")
    with place.connect(settings=QUICK) as lake:
        make_banks(lake)

    def work(_: int) -> None:
        with place.connect(settings=QUICK) as lake:
            for _ in range(5):
                assert transfer(lake, 1) == "moved"

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert (balance(place, "bank_x"), balance(place, "bank_y")) == (80, 120)
    with place.connect(settings=QUICK) as lake:
        numbers = [int(key.removeprefix(HEADS).removesuffix(".json")) for key in heads_in(lake)]
    assert numbers == list(range(1, len(numbers) + 1))


def nth_put(number: int) -> Callable[[str, str], bool]:
    """Return a function that tells whether a request is the PUT of that number from now on."""
    puts, lock = itertools.count(1), threading.Lock()

    def is_it(method: str, path: str) -> bool:
        with lock:
            return method == "PUT" and "/probe/" not in path and next(puts) == number

    return is_it


@pytest.mark.parametrize("flaw", ["match refused", "none"])
def test_an_answer_lost_at_any_put_commits_once_also_for_a_new_process(
    behind: Open, flaw: Flaw
) -> None:
    """The store performs a PUT and the connection breaks: tried for each PUT of a commit."""
    place, gateway = behind(flaw)
    with place.connect(settings=QUICK) as lake:
        make_banks(lake)
    step = how_many(3, whole=1)
    for done, number in enumerate(itertools.count(1, step), 1):
        before = gateway.lost
        with place.connect(settings=QUICK) as lake:
            gateway.loses = nth_put(number)
            assert transfer(lake, 1, idempotency_key=f"move {number}") == "moved"
            gateway.loses = lambda method, path: False
        with place.connect(settings=QUICK) as other:
            assert transfer(other, 1, idempotency_key=f"move {number}") is None
        assert balance(place, "bank_y") == 100 + done
        assert balance(place, "bank_x") == 100 - done
        if gateway.lost == before:
            break
    # Two data files, the commit object, the key, HEAD, two log entries.
    assert number - step < 8 <= number


@pytest.mark.parametrize("first", ["match refused", "none"])
@pytest.mark.night
def test_a_client_keeps_the_form_of_head_with_which_the_lake_was_created(
    behind: Open, first: Flaw
) -> None:
    """Clients of two endpoints of one store use the same HEAD, or get an error."""
    making, _ = behind(first)
    other, _ = behind("none" if first == "match refused" else "match ignored")
    with making.connect(settings=QUICK) as lake:
        make_banks(lake)
        transfer(lake, 1)
        has_log = bool(heads_in(lake))
    assert has_log == (first == "match refused")
    # As in another process: the probe of one endpoint does not count for the other.
    _PROBED.clear()
    with other.connect(settings=QUICK) as lake:
        assert values(lake.snapshot().read("bank_x"), "balance") == [99, 100]
        if has_log:
            transfer(lake, 1)
            assert (balance(other, "bank_x"), balance(other, "bank_y")) == (98, 102)
        else:
            with pytest.raises(lv.UnsafeStore, match=r"HEAD\.json has to be replaced") as caught:
                transfer(lake, 1)
            assert "endpoint" in caught.value.message
            assert heads_in(lake) == []
    _PROBED.clear()
    with making.connect(settings=QUICK) as lake:
        transfer(lake, 1)
        assert bool(heads_in(lake)) == has_log
    left = 97 if has_log else 98
    assert (balance(making, "bank_x"), balance(making, "bank_y")) == (left, 200 - left)


@pytest.mark.night
def test_a_lake_whose_head_is_replaced_under_checks_is_not_forked_by_other_clients(
    behind: Open,
) -> None:
    """The lake was made without conditional writes; another endpoint can create conditionally."""
    nothing, _ = behind("ignored")
    creates, _ = behind("match refused")
    checks = {"conditional_writes": "check"}
    settings = lv.Settings(check_interval_seconds=0.002, retry_limit=3, retry_base_seconds=0.01)
    _PROBED.clear()
    with nothing.connect(settings=settings, **checks) as lake:
        make_banks(lake)
    _PROBED.clear()
    with creates.connect(settings=settings) as lake, pytest.raises(lv.UnsafeStore):
        transfer(lake, 1)
    with creates.connect(settings=settings, **checks) as lake:
        transfer(lake, 1)
        assert heads_in(lake) == []
    _PROBED.clear()
    assert (balance(nothing, "bank_x"), balance(nothing, "bank_y")) == (99, 101)


@pytest.mark.night
def test_a_store_that_creates_conditionally_needs_no_checks_even_if_allowed(behind: Open) -> None:
    place, _ = behind("match refused")
    events: list[lv.Event] = []
    options: dict[str, Any] = {"settings": QUICK, "conditional_writes": "check"}
    with place.connect(on_event=events.append, **options) as lake:
        make_banks(lake)
        transfer(lake, 1)
        assert heads_in(lake)
    assert "unsafe_store" not in kinds(events)


@pytest.mark.night
def test_a_lake_on_a_store_that_can_not_replace_refuses_only_queues_and_saves(
    behind: Open,
) -> None:
    place, _ = behind("match refused")
    # Settings by which every transaction would be saved at once.
    settings = replace(QUICK, save_interval_seconds=0.0, escalate_after=1)
    with place.connect(settings=settings) as lake:
        make_banks(lake)
        queued = {"features": lv.Feature.R | lv.Feature.CT | lv.Feature.I}
        with pytest.raises(lv.InvalidOperation, match=r"Feature\.CT"):
            transfer(lake, 1, **queued)
        for features in (lv.Feature.R | lv.Feature.I, lv.Feature.R):
            with lake.transaction(features) as txn:
                txn.append("bank_x", [{"id": 5, "balance": 0}])
                with pytest.raises(lv.StoreError, match="can't be saved"):
                    txn.save()
                txn.append("bank_x", [{"id": 6, "balance": 0}])
        with (
            pytest.raises(lv.StoreError, match="can't be saved"),
            lake.transaction(durability="every_op") as txn,
        ):
            txn.append("bank_x", [{"id": 9, "balance": 0}])
        attempts = []

        def conflicting(txn: lv.Transaction) -> None:
            """Lose three races, after which a transaction would otherwise reserve its tables."""
            found = txn.read("bank_x", where="id = 1").to_pylist()[0]["balance"]
            attempts.append(found)
            if len(attempts) < 4:
                with place.connect(settings=settings) as other:
                    other.run(
                        lambda txn: txn.update("bank_x", {"balance": "balance + 1"}, "id = 1")
                    )
            txn.update("bank_x", {"balance": found + 100}, where="id = 1")

        lake.run(conflicting)
        assert attempts == [100, 101, 102, 103]
        assert lake.transactions() == []
        assert lake.doctor().ok
    assert values(place.delta("bank_x").to_pyarrow_table()) == [0, 1, 5, 5, 6, 6]
    first = {"features": lv.Feature.R | lv.Feature.CT}
    with place.connect(settings=settings) as fresh:
        with pytest.raises(lv.InvalidOperation, match=r"Feature\.CT"):
            transfer(fresh, 1, **first)
        assert fresh.transactions() == []


@pytest.mark.night
def test_a_client_sees_commits_of_its_pickled_copy(behind: Open) -> None:
    place, _ = behind("match ignored")
    with place.connect(settings=QUICK) as lake:
        make_banks(lake)
        twin = pickle.loads(pickle.dumps(lake))
        for turn in range(3):
            transfer(twin if turn % 2 else lake, 1)
        assert values(lake.snapshot().read("bank_x"), "balance") == [97, 100]
        assert values(twin.snapshot().read("bank_x"), "balance") == [97, 100]


@pytest.mark.parametrize("flaw", ["match refused", "match ignored"])
@pytest.mark.night
def test_a_lost_first_head_of_a_log_of_heads_is_restored_by_recover(
    behind: Open, flaw: Flaw
) -> None:
    place, _ = behind(flaw)
    with place.connect(settings=QUICK) as lake:
        make_banks(lake)
        held = inside(lake).held
        assert held is not None
        inside(lake).store.delete("_lakevilla/HEAD.json")
        transfer(lake, 10)  # a client that has a later HEAD cached does not notice the loss
    with place.connect(settings=QUICK) as fresh:
        with pytest.raises(lv.CorruptObject, match="--rebuild-head"):
            transfer(fresh, 1)
        (told,) = fresh.recover(rebuild_head=True).findings
        assert (told.severity, told.kind) == ("note", "head_restored")
        transfer(fresh, 1)
        assert inside(fresh).held is not None
        assert inside(fresh).held.head.lake_id == held.head.lake_id
        assert fresh.doctor().ok
        with pytest.raises(lv.InvalidOperation, match="nothing to rebuild"):
            fresh.recover(rebuild_head=True)
    assert (balance(place, "bank_x"), balance(place, "bank_y")) == (89, 111)


@pytest.mark.parametrize("lost", ["all", "one"])
@pytest.mark.night
def test_a_log_of_heads_with_a_hole_is_not_rebuilt(behind: Open, lost: str) -> None:
    place, _ = behind("match refused")
    with place.connect(settings=QUICK) as lake:
        make_banks(lake)
        transfer(lake, 10)
        gone = heads_in(lake) if lost == "all" else heads_in(lake)[:1]
        for key in ("_lakevilla/HEAD.json", *gone):
            inside(lake).store.delete(key)
    with place.connect(settings=QUICK) as fresh, pytest.raises(lv.CorruptObject, match="a copy"):
        fresh.recover(rebuild_head=True)


@pytest.mark.night
def test_tags_can_be_created_kept_and_deleted_on_a_store_that_can_not_replace(behind: Open) -> None:
    place, _ = behind("match refused")
    with place.connect(settings=QUICK) as lake:
        make_banks(lake)
        lake.tag("opening")
        for _ in range(3):
            transfer(lake, 5)
            for name in lake:
                lake[name].vacuum(0, dry_run=False, enforce_retention_duration=False)
            lake.gc()
        assert balance(place, "bank_x") == 85
        assert values(lake.on("opening").read("bank_x"), "balance") == [100, 100]
        with pytest.raises(lv.RefExists):
            lake.tag("opening")
        lake.protect("opening")
        lake.protect("opening", on=False)
        lake.delete_ref("opening")
        assert lake.refs() == []

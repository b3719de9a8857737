"""Batches of one checkpoint are contiguous: a gap shows that the lake was set back (note 49).

Spark knows the caller of the function and the batch's checkpoint; here a fixture sets them
(``tests/contract/spark/streams`` uses Spark itself).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import lakevilla as lv
from lakevilla.api import run
from tests.contract.recovery.test_batches_of_another_checkpoint import (
    head_is_lost,
    history_goes,
    keep,
    run_twice,
    time_passes,
)
from tests.support.places import Place
from tests.support.tables import values

Bring = Callable[..., None]


@pytest.fixture
def bring(monkeypatch: pytest.MonkeyPatch) -> Bring:
    """Return a function that brings a batch as Spark does; its one row is its number."""

    def brought(
        lake: lv.Lake,
        number: int,
        fn: Callable[..., object] = keep,
        of: str = "first",
        by_spark: bool = True,
        **options: Any,
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(run, "checkpoint_of", lambda *_: of)
            patch.setattr(run, "digest_of_plan", lambda *_: f"plan of {number}")
            patch.setattr(run, "called_by_spark", lambda: by_spark)
            lake.foreach_batch(fn, query_id="q", **options)([{"id": number}], number)

    return brought


def nothing(txn: lv.Transaction, rows: Any) -> None:
    pass


def reads(txn: lv.Transaction, rows: Any) -> None:
    txn.read("t")


def aborts(txn: lv.Transaction, rows: Any) -> None:
    txn.append("t", rows)
    txn.abort()


def commits(txn: lv.Transaction, rows: Any) -> None:
    txn.commit()


def made(place: Place) -> lv.Lake:
    lake = place.connect()
    lake.create_table("t", {"id": "long"})
    lake.create_table("other", {"id": "long"})
    return lake


def ids(lake: lv.Lake) -> list[int]:
    return values(lake.snapshot().read("t"))


@pytest.mark.parametrize("then", [time_passes, history_goes, head_is_lost])
def test_a_batch_after_a_gap_is_refused(
    shared_place: Place, bring: Bring, then: Callable[[Place], lv.Lake]
) -> None:
    with made(shared_place) as lake:
        bring(lake, 0)
        bring(lake, 1)
    with then(shared_place) as lake:
        message = (
            r"'q' brings batch 4, and lake .* ends with its batch 1: batches 2 to 3 of checkpoint "
            r"first .* newer state of the lake, or .* copy of the checkpoint .* or .* query_id "
            r"of its own"
        )
        for fn in (keep, nothing, keep):  # an empty batch does not close the gap
            with pytest.raises(lv.InvalidOperation, match=message):
                bring(lake, 4, fn)
        with pytest.raises(lv.InvalidOperation, match="stays without batch 2"):
            bring(lake, 3)
        bring(lake, 2)
        bring(lake, 3)
        assert ids(lake) == [0, 1, 2, 3]


@pytest.mark.parametrize("empty", [nothing, reads, aborts, commits])
def test_a_batch_that_writes_nothing_is_not_reported_as_a_gap(
    quick_place: Place, bring: Bring, empty: Callable[..., object]
) -> None:
    with made(quick_place) as lake:
        for number in range(7):
            bring(lake, number, keep if number in (1, 4) else empty)
        bring(lake, 6, empty)  # a repetition: the driver died before Spark recorded the batch
        with pytest.raises(lv.InvalidOperation, match="ends with its batch 6: batch 7 of"):
            bring(lake, 8)
        bring(lake, 7)
        bring(lake, 7)
        assert ids(lake) == [1, 4, 7]


@pytest.mark.parametrize("then", [time_passes, history_goes, head_is_lost])
def test_notes_of_empty_batches_survive_time_forgotten_history_and_loss_of_head(
    shared_place: Place, bring: Bring, then: Callable[[Place], lv.Lake]
) -> None:
    with made(shared_place) as lake:
        bring(lake, 0)
        bring(lake, 1, nothing)
        bring(lake, 2, nothing)
    with then(shared_place) as lake:
        with pytest.raises(lv.InvalidOperation, match="ends with its batch 2"):
            bring(lake, 4)
        with pytest.raises(lv.InvalidOperation, match="brings batch 0 of checkpoint second"):
            bring(lake, 0, of="second")
        bring(lake, 2, nothing)
        bring(lake, 3)
        assert ids(lake) == [0, 3]


def test_an_empty_batch_may_have_rows_when_it_is_repeated(quick_place: Place, bring: Bring) -> None:
    with made(quick_place) as lake:
        bring(lake, 0)
        bring(lake, 1, nothing)
        bring(lake, 1)
        bring(lake, 2)
        assert ids(lake) == [0, 1, 2]


def test_batches_that_a_users_wrapper_skips_are_not_reported_as_a_gap(
    quick_place: Place, bring: Bring
) -> None:
    with made(quick_place) as lake:
        for number in (0, 3, 5):
            bring(lake, number, by_spark=False)
        bring(lake, 8)  # from here on, Spark calls the function itself
        with pytest.raises(lv.InvalidOperation, match="ends with its batch 8"):
            bring(lake, 10)
        bring(lake, 10, by_spark=False)
        bring(lake, 12)
        assert ids(lake) == [0, 3, 5, 8, 10, 12]


def test_a_gap_is_not_reported_if_the_checkpoint_is_unknown_or_different(
    quick_place: Place, bring: Bring
) -> None:
    with made(quick_place) as lake:
        bring(lake, 7)  # a stream that began without LakeVilla
        bring(lake, 9, of="second")
        bring(lake, 12, of="")
        bring(lake, 14)
        lake.run(lambda txn: txn.append("t", [{"id": 20}]), idempotency_key=("q", 20))
        bring(lake, 22)
        lake.run(lambda txn: txn.append("t", [{"id": 30}]), idempotency_key=("q", 30))
        assert ids(lake) == [7, 9, 12, 14, 20, 22, 30]


def test_a_lake_that_was_set_back_accepts_batches_of_an_equally_old_checkpoint(
    shared_place: Place, bring: Bring
) -> None:
    with made(shared_place) as lake:
        bring(lake, 0)
        shutil.copytree(shared_place.root, f"{shared_place.root}-older")
        bring(lake, 1)
        bring(lake, 2)
    shutil.move(shared_place.root, f"{shared_place.root}-newer")
    shutil.copytree(f"{shared_place.root}-older", shared_place.root)
    with shared_place.connect() as lake:
        with pytest.raises(lv.InvalidOperation, match="ends with its batch 0: batches 1 to 2 of"):
            bring(lake, 3)
        bring(lake, 1)  # from an equally old copy of the checkpoint
        assert ids(lake) == [0, 1]
    shutil.rmtree(shared_place.root)
    shutil.move(f"{shared_place.root}-newer", shared_place.root)
    with shared_place.connect() as lake:
        bring(lake, 3)
        assert ids(lake) == [0, 1, 2, 3]


def test_a_gap_is_reported_by_a_copy_of_a_lake_with_newer_keys_than_commits(
    shared_place: Place, bring: Bring
) -> None:
    """A copy made while the stream wrote may have a batch's key without the batch's commit."""
    with made(shared_place) as lake:
        bring(lake, 0)
        shutil.copytree(shared_place.root, f"{shared_place.root}-older")
        bring(lake, 1)
    shutil.copytree(
        Path(shared_place.root, "_lakevilla", "keys"),
        Path(f"{shared_place.root}-older", "_lakevilla", "keys"),
        dirs_exist_ok=True,
    )
    shutil.rmtree(shared_place.root)
    shutil.move(f"{shared_place.root}-older", shared_place.root)
    with shared_place.connect(settings=lv.Settings(lease_seconds=0.2)) as lake:
        with pytest.raises(lv.InvalidOperation, match="ends with its batch 0: batch 1 of"):
            bring(lake, 2)
        bring(lake, 1)
        assert ids(lake) == [0, 1]


@pytest.mark.parametrize("options", [{}, {"durability": "every_op"}])
def test_a_batch_that_is_run_again_after_a_conflict_is_counted(
    quick_place: Place, bring: Bring, options: dict[str, Any]
) -> None:
    with made(quick_place) as lake, quick_place.connect() as other:
        contested, calls = run_twice(other)
        bring(lake, 0, contested, **options)
        assert len(calls) == 2
        with pytest.raises(lv.InvalidOperation, match="ends with its batch 0"):
            bring(lake, 2)
        bring(lake, 1)
        assert ids(lake) == [0, 1, 9]


def history_is_forgotten(place: Place) -> lv.Lake:
    """Change the key's object so that HEAD does not show how the key's last use ended."""
    (stored,) = Path(place.root, "_lakevilla", "keys").glob("*.json")
    record = msgspec.json.decode(stored.read_bytes())
    stored.write_bytes(msgspec.json.encode({**record, "sequence": -1}))
    return place.connect()


@pytest.mark.parametrize("then", [time_passes, history_is_forgotten])
def test_a_batch_whose_second_run_writes_nothing_is_counted(
    shared_place: Place, bring: Bring, then: Callable[[Place], lv.Lake]
) -> None:
    with made(shared_place) as lake, shared_place.connect() as other:
        bring(lake, 0)
        calls: list[str] = []

        def once(txn: lv.Transaction, rows: Any) -> None:
            calls.append(txn.id)
            if len(calls) == 1:
                txn.read("t")
                other.run(lambda t: t.append("t", [{"id": 9}]))
                txn.append("t", rows)

        bring(lake, 1, once)
        assert len(calls) == 2
    with then(shared_place) as lake:
        bring(lake, 2)
        assert ids(lake) == [0, 2, 9]


def test_a_saved_batch_is_counted_when_another_client_resumes_it(
    quick_place: Place, bring: Bring
) -> None:
    with made(quick_place) as lake, quick_place.connect() as other:
        bring(lake, 0)

        def dies(txn: lv.Transaction, rows: Any) -> None:
            keep(txn, rows)
            txn.save()
            other.resume(txn.id).commit()
            raise ValueError("no luck today")

        with pytest.raises(ValueError, match="no luck"):
            bring(lake, 1, dies)
        with pytest.raises(lv.InvalidOperation, match="ends with its batch 1"):
            bring(lake, 3)
        bring(lake, 2)
        assert ids(lake) == [0, 1, 2]


def test_a_gap_is_not_reported_after_an_older_client_has_dropped_the_count_of_batches(
    tmp_path: Path, bring: Bring
) -> None:
    """An older client omits the field ``due`` when it replaces the key's object."""
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", {"id": "long"})
        bring(lake, 0)
        bring(lake, 1, nothing)
        (stored,) = Path(tmp_path, "_lakevilla", "keys").glob("*.json")
        record = msgspec.json.decode(stored.read_bytes())
        assert (record["version"], record["committed"], record.pop("due")) == (0, 0, 2)
        stored.write_bytes(msgspec.json.encode(record))
    with lv.connect(str(tmp_path)) as lake:
        bring(lake, 5)
        with pytest.raises(lv.InvalidOperation, match="ends with its batch 5"):
            bring(lake, 7)
        assert ids(lake) == [0, 5]

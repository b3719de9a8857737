"""A batch of another checkpoint is no repetition, and is refused: a skip would lose its rows.

So is a batch that its checkpoint has planned again with other rows. Spark knows a batch's
checkpoint and plan; here a fixture sets them (``tests/contract/spark`` uses Spark itself).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import lakevilla as lv
from lakevilla.api import run
from tests.support.places import Place
from tests.support.tables import values

Write = Callable[..., None]


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes a batch as Spark does; its one row is its number."""

    def written(
        lake: lv.Lake,
        number: int,
        of: str,
        fn: Callable[..., object] = keep,
        planned: str = "",
        **options: Any,
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(run, "checkpoint_of", lambda *_: of)
            patch.setattr(run, "digest_of_plan", lambda *_: planned)
            lake.foreach_batch(fn, query_id="q", **options)([{"id": number}], number)

    return written


def keep(txn: lv.Transaction, rows: Any) -> None:
    txn.append("t", rows)


def test_only_the_last_batch_can_be_repeated(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        lake.create_table("t", {"id": "long"})
        write = lake.foreach_batch(keep, query_id="q")
        for batch in (0, 1, 1, 3, 3):  # batch 2 is missing: it wrote nothing
            write([{"id": batch}], batch)
        for batch in (0, 2):
            with pytest.raises(lv.InvalidOperation, match=rf"'q' brings batch {batch}, .* batch 3"):
                write([{"id": 7}], batch)
        write([{"id": 4}], 4)
        assert sorted(lake.read("t")["id"].to_pylist()) == [0, 1, 3, 4]


def test_a_failed_batch_can_be_repeated(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        lake.create_table("t", {"id": "long"})

        def fails(txn: lv.Transaction, rows: Any) -> None:
            keep(txn, rows)
            raise ValueError("no luck today")

        lake.foreach_batch(keep, query_id="q")([{"id": 0}], 0)
        with pytest.raises(ValueError, match="no luck"):
            lake.foreach_batch(fails, query_id="q")([{"id": 1}], 1)
        lake.foreach_batch(keep, query_id="q")([{"id": 1}], 1)
        assert sorted(lake.read("t")["id"].to_pylist()) == [0, 1]


def time_passes(place: Place) -> lv.Lake:
    return place.connect()


def history_goes(place: Place) -> lv.Lake:
    """Have gc forget the batch's commit, so that only the key's object proves the batch."""
    lake = place.connect(settings=lv.Settings(max_age_seconds=0, outcome_retention_seconds=0))
    lake.run(lambda txn: txn.append("other", [{"id": 1}]))
    for _ in range(2):
        lake.gc()
    assert list(lake.history()) == []
    return lake


def head_is_lost(place: Place) -> lv.Lake:
    Path(place.root, "_lakevilla", "HEAD.json").unlink()
    lake = place.connect()
    lake.recover(rebuild_head=True)
    return lake


@pytest.mark.parametrize("then", [time_passes, history_goes, head_is_lost])
def test_a_batch_with_the_last_number_of_another_checkpoint_is_refused(
    shared_place: Place, write: Write, then: Callable[[Place], lv.Lake]
) -> None:
    with shared_place.connect() as lake:
        lake.create_table("t", {"id": "long"})
        lake.create_table("other", {"id": "long"})
        write(lake, 0, "first")
    with then(shared_place) as lake:
        for other in ("second", ""):
            with pytest.raises(lv.InvalidOperation, match=r"'q' brings batch 0 of .* query_id of"):
                write(lake, 0, other)

        write(lake, 0, "first")  # a repetition: the driver died before Spark recorded the batch
        write(lake, 1, "first")
        with pytest.raises(lv.InvalidOperation, match="brings batch 1 of checkpoint second"):
            write(lake, 1, "second")
        write(lake, 2, "second")  # a new number, so no batch is skipped
        assert values(lake.snapshot().read("t")) == [0, 1, 2]


def run_twice(other: lv.Lake) -> tuple[Callable[[lv.Transaction, Any], None], list[str]]:
    """Return a batch function that conflicts once with another writer, and its transaction ids."""
    calls: list[str] = []

    def contested(txn: lv.Transaction, rows: Any) -> None:
        calls.append(txn.id)
        txn.read("t")
        if len(calls) == 1:
            other.run(lambda t: t.append("t", [{"id": 9}]))
        txn.append("t", rows)

    return contested, calls


@pytest.mark.parametrize("options", [{}, {"durability": "every_op"}])
def test_a_batch_that_is_run_again_after_a_conflict_keeps_its_checkpoint(
    quick_place: Place, write: Write, options: dict[str, Any]
) -> None:
    with quick_place.connect() as lake, quick_place.connect() as other:
        lake.create_table("t", {"id": "long"})
        contested, calls = run_twice(other)
        write(lake, 0, "first", contested, **options)
        assert len(calls) == 2
        write(lake, 0, "first")
        with pytest.raises(lv.InvalidOperation, match="checkpoint second"):
            write(lake, 0, "second")
        assert values(lake.snapshot().read("t")) == [0, 9]


def test_a_batch_that_failed_may_come_from_another_checkpoint_next(
    quick_place: Place, write: Write
) -> None:
    with quick_place.connect() as lake:
        lake.create_table("t", {"id": "long"})

        def fails(txn: lv.Transaction, rows: Any) -> None:
            keep(txn, rows)
            raise ValueError("no luck today")

        with pytest.raises(ValueError, match="no luck"):
            write(lake, 0, "first", fails)
        write(lake, 0, "second")
        with pytest.raises(lv.InvalidOperation, match="batch 0 of checkpoint first"):
            write(lake, 0, "first")
        assert values(lake.snapshot().read("t")) == [0]


def test_an_idempotency_pair_outside_foreach_batch_needs_no_checkpoint(
    quick_place: Place, write: Write
) -> None:
    with quick_place.connect() as lake:
        lake.create_table("t", {"id": "long"})
        write(lake, 3, "first")
        with pytest.raises(lv.AlreadyCommitted), lake.transaction(idempotency_key=("q", 3)):
            pass
        lake.run(lambda txn: txn.append("t", [{"id": 4}]), idempotency_key=("q", 4))
        with pytest.raises(lv.InvalidOperation, match="batch 4 of checkpoint unknown"):
            write(lake, 4, "first")
        assert values(lake.snapshot().read("t")) == [3, 4]


@pytest.mark.parametrize("then", [time_passes, history_goes, head_is_lost])
def test_a_batch_that_its_checkpoint_has_planned_again_with_other_rows_is_refused(
    shared_place: Place, write: Write, then: Callable[[Place], lv.Lake]
) -> None:
    with shared_place.connect() as lake:
        lake.create_table("t", {"id": "long"})
        lake.create_table("other", {"id": "long"})
        write(lake, 0, "first", planned="a")
    with then(shared_place) as lake:
        message = (
            r"'q' brings batch 0, and lake .*lake.* has a batch 0 of other rows: checkpoint first"
        )
        with pytest.raises(lv.InvalidOperation, match=message):
            write(lake, 0, "first", planned="b")
        write(lake, 0, "first", planned="a")  # a repetition
        write(lake, 0, "first")  # without a plan: taken for a repetition
        write(lake, 1, "first", planned="c")
        with pytest.raises(lv.InvalidOperation, match="batch 1 of other rows"):
            write(lake, 1, "first", planned="a")
        write(lake, 2, "first")
        write(lake, 2, "first", planned="d")  # the first had no plan: a repetition
        assert values(lake.snapshot().read("t")) == [0, 1, 2]


@pytest.mark.parametrize("options", [{}, {"durability": "every_op"}])
def test_a_batch_that_is_run_again_after_a_conflict_keeps_its_plan(
    quick_place: Place, write: Write, options: dict[str, Any]
) -> None:
    with quick_place.connect() as lake, quick_place.connect() as other:
        lake.create_table("t", {"id": "long"})
        contested, calls = run_twice(other)
        write(lake, 0, "first", contested, planned="a", **options)
        assert len(calls) == 2
        write(lake, 0, "first", planned="a")
        with pytest.raises(lv.InvalidOperation, match="of other rows"):
            write(lake, 0, "first", planned="b")
        assert values(lake.snapshot().read("t")) == [0, 9]


def test_a_failed_batch_may_be_planned_again_with_other_rows(
    quick_place: Place, write: Write
) -> None:
    with quick_place.connect() as lake:
        lake.create_table("t", {"id": "long"})

        def fails(txn: lv.Transaction, rows: Any) -> None:
            keep(txn, rows)
            raise ValueError("no luck today")

        with pytest.raises(ValueError, match="no luck"):
            write(lake, 0, "first", fails, planned="a")
        write(lake, 0, "first", planned="b")
        with pytest.raises(lv.InvalidOperation, match="of other rows"):
            write(lake, 0, "first", planned="a")
        assert values(lake.snapshot().read("t")) == [0]


def test_an_older_client_can_read_the_key_of_a_planned_batch(tmp_path: Path, write: Write) -> None:
    """An older client does not know the field ``planned`` of the key's object, and ignores it."""

    class Before(msgspec.Struct):
        key: str
        version: int
        checkpoint: str

    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", {"id": "long"})
        write(lake, 0, "first", planned="a")
    (stored,) = Path(tmp_path, "_lakevilla", "keys").glob("*.json")
    assert msgspec.json.decode(stored.read_bytes(), type=Before) == Before("q", 0, "first")
    assert msgspec.json.decode(stored.read_bytes())["planned"] == "a"

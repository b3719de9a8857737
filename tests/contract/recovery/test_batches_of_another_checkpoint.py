"""A batch from before the last one of its query is no repetition: skipped, its rows are lost."""

from __future__ import annotations

from typing import Any

import pytest

import lakevilla as lv
from tests.support.places import Place


def keep(txn: lv.Transaction, rows: Any) -> None:
    txn.append("t", rows)


def test_only_the_last_batch_may_come_again(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        lake.create_table("t", {"id": "long"})
        write = lake.foreach_batch(keep, query_id="q")
        for batch in (0, 1, 1, 3, 3):  # that of 2 wrote nothing
            write([{"id": batch}], batch)
        for batch in (0, 2):
            with pytest.raises(lv.InvalidOperation, match=rf"'q' brings batch {batch}, .* batch 3"):
                write([{"id": 7}], batch)
        write([{"id": 4}], 4)
        assert sorted(lake.read("t")["id"].to_pylist()) == [0, 1, 3, 4]


def test_a_batch_that_failed_after_it_began_may_come_again(quick_place: Place) -> None:
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

"""A transaction far behind, where others have changed the definition of a table, and its files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

import lakevilla as lv
from lakevilla.api.execution.executor import Executor
from lakevilla.api.run import begin_transaction
from lakevilla.lake import row_changes
from tests.support.inside import inside

FEATURES = lv.Feature.R | lv.Feature.I


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_an_optimize_far_behind_a_delete_and_a_new_property_brings_no_row_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Literal["delta", "iceberg"]
) -> None:
    monkeypatch.setattr(row_changes, "_MANY_ENTRIES", 2)
    with lv.connect(tmp_path) as lake, lv.connect(tmp_path) as other:
        lake.create_table("t", [{"id": 1}], format=format)
        for number in (2, 3):
            lake.run(lambda txn, number=number: txn.append("t", [{"id": number}]))
        with begin_transaction(inside(lake).client, Executor, FEATURES) as executor:
            assert executor.optimize("t", None, None, ()) is not None
            other.run(lambda txn: txn.delete("t", where="id = 2"))
            other.run(lambda txn: txn.alter("t", set_properties={"owner": "me"}))
            for number in range(100, 170):
                other.run(lambda txn, number=number: txn.append("t", [{"id": number}]))
    with lv.connect(tmp_path) as lake:
        assert sorted(lake.read("t")["id"].to_pylist()) == [1, 3, *range(100, 170)]
        assert lake.doctor().ok

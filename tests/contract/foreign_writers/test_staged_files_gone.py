"""A transaction that ran so long that another client's clean-up deleted its files (hazard 6)."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from tests.support.places import Place


def data_files(place: Place) -> set[Path]:
    return set(Path(place.uri("t")).rglob("*.parquet"))


@pytest.mark.parametrize(
    "features", [lv.Feature.R, lv.Feature.R | lv.Feature.I], ids=["by entry", "through HEAD"]
)
def test_a_transaction_whose_file_was_deleted_before_the_commit_is_refused_with_the_files_name(
    shared_place: Place, features: lv.Feature
) -> None:
    # A client considers a clean-up of its files after an hour; here at once.
    with shared_place.connect(settings=lv.Settings(checked_tip_seconds=0.001)) as lake:
        lake.create_table("t", {"a": [1]})
        before = data_files(shared_place)
        txn = lake.transaction(features=features)
        txn.append("t", {"a": [2, 3]})
        assert len(txn.read("t")) == 3  # from here on the file is stored
        (staged,) = data_files(shared_place) - before
        staged.unlink()
        with pytest.raises(lv.TransactionAborted, match="removed by another client") as told:
            txn.commit()
        assert staged.name in told.value.message
        txn.abort()
        assert lake.snapshot().read("t").to_pylist() == [{"a": 1}]
    with shared_place.connect() as fresh, fresh.transaction(features=features) as later:
        later.append("t", {"a": [4]})
    assert len(shared_place.seen("t")) == 2

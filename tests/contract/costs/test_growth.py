"""Requests that do not grow with a lake's past."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.store.runner import Requests
from tests.support.places import Place
from tests.support.tables import accounts
from tests.support.traces import cost


def append(lake: lv.Lake, features: lv.Feature, times: int) -> None:
    for _ in range(times):
        lake.run(lambda txn: txn.append("t", accounts(1)), features=features)


def cold_read(place: Place) -> Requests:
    with place.connect() as lake:
        return cost(lake, lambda: lake.table("t").version)


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R], ids=["NONE", "R"])
def test_a_table_is_opened_by_as_many_requests_after_many_commits_by_log_entry(
    local_place: Place, features: lv.Feature
) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        append(lake, features, 30)
        few = cold_read(local_place)
        append(lake, features, 100)
    many = cold_read(local_place)
    assert many.get <= few.get + 3  # with a checkpoint and its pointer
    assert (many.put, many.list) == (few.put, few.list)

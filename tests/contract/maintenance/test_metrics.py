"""The numbers that a lake gives to monitoring, and the requests that a scrape takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

import lakevilla as lv
from bench.size.many_tables import commit_two, lake_of, real_tables
from lakevilla.gauges import GAUGES
from lakevilla.global_log.inbox.proposal import INBOX_PREFIX
from lakevilla.opentelemetry import observe
from lakevilla.store.base import ABSENT
from lakevilla.store.effects import Put
from tests.support.inside import inside
from tests.support.stores import Closed, is_entry

QUEUED = lv.Feature.R | lv.Feature.CT | lv.Feature.I
#: HEAD, a LIST of records, one of proposals, and a GET for each task of upkeep.
REQUESTS = 9


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("sales/orders", [{"id": 1}, {"id": 2}])
        lake.create_table("stock", [{"id": 1}])
        yield lake


def samples(text: str) -> dict[tuple[str, str], float]:
    """Return the samples of Prometheus' text by name and the label beside the lake's."""
    return {
        (
            one.name,
            "".join(value for name, value in one.labels.items() if name != "lake"),
        ): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_metrics_count_tables_files_and_rows(lake: lv.Lake) -> None:
    lake.run(lambda txn: txn.append("stock", [{"id": 2}]))
    found = samples(lake.metrics().prometheus())
    assert found["lakevilla_up", ""] == 1
    assert found["lakevilla_head_version", ""] == 3
    assert found["lakevilla_tables", ""] == 2
    assert found["lakevilla_files", ""] == found["lakevilla_small_files", ""] == 3
    assert found["lakevilla_rows", ""] == 4
    assert found["lakevilla_table_files", "stock"] == 2
    assert found["lakevilla_table_rows", "sales/orders"] == 2


def test_files_are_small_by_the_target_of_who_measures(lake: lv.Lake) -> None:
    assert lake.metrics().values["lakevilla_small_files"] == 2
    with lv.connect(lake.root, settings=lv.Settings(target_file_size_bytes=64)) as other:
        assert other.metrics().values["lakevilla_small_files"] == 0


def test_only_the_tables_with_the_most_small_files_are_named(lake: lv.Lake) -> None:
    lake.run(lambda txn: txn.append("stock", [{"id": 2}]))
    found = lake.metrics(tables=1).values
    assert found["lakevilla_table_small_files"] == {"stock": 2}
    assert found["lakevilla_small_files"] == 3
    with pytest.raises(lv.InvalidOperation, match="tables must be a whole number"):
        lake.metrics(tables=-1)


def test_a_commit_is_pending_until_upkeep_has_seen_it_in_the_logs(lake: lv.Lake) -> None:
    before = lake.metrics().values
    assert before["lakevilla_commits_pending"] == 2
    assert lake.maintain(["recover"]).ok
    after = lake.metrics().values
    assert after["lakevilla_commits_pending"] == 0
    assert "lakevilla_oldest_pending_commit_timestamp_seconds" not in after
    assert after["lakevilla_upkeep_ok"] == {"recover": 1}
    lake.run(lambda txn: txn.append("stock", [{"id": 2}]))
    newest = lake.metrics().values
    assert newest["lakevilla_commits_pending"] == 1
    decided = newest["lakevilla_oldest_pending_commit_timestamp_seconds"]
    assert decided == newest["lakevilla_head_timestamp_seconds"]


def test_a_commit_that_a_dead_client_has_left_is_pending_until_upkeep_publishes_it(
    lake: lv.Lake,
) -> None:
    assert lake.maintain(["recover"]).ok
    with lv.connect(lake.root) as dying:
        inside(dying).store = Closed(inside(dying).store, is_entry("stock"))
        dying.run(lambda txn: txn.append("stock", [{"id": 9}]), wait="decided")
    assert lake.metrics().values["lakevilla_commits_pending"] == 1
    assert DeltaTable(f"{lake.root}/stock").version() == 0
    assert lake.maintain(["recover"]).ok
    assert lake.metrics().values["lakevilla_commits_pending"] == 0
    assert DeltaTable(f"{lake.root}/stock").version() == 1


def test_metrics_show_queues_and_the_oldest_transaction(lake: lv.Lake) -> None:
    first, second = lake.transaction(QUEUED), lake.transaction(QUEUED)
    with first, second:
        first.take_turn("stock")
        second.take_turn("sales/orders")
        first.save()
        second.save()
        found = samples(lake.metrics().prometheus())
        assert found["lakevilla_transactions", "running"] == 2
        assert found["lakevilla_queue_depth", "stock"] == 1
        began = found["lakevilla_oldest_transaction_timestamp_seconds", ""]
        assert abs(began - lake.transactions()[0].started.timestamp()) < 0.01
        first.abort()
        second.abort()
    after = lake.metrics().values
    assert "lakevilla_oldest_transaction_timestamp_seconds" not in after


def test_metrics_count_proposals(lake: lv.Lake) -> None:
    key = f"{INBOX_PREFIX}/00000000000000000001-{'0' * 64}.json"
    inside(lake).client.run(put(key))
    assert lake.metrics().values["lakevilla_proposals"] == 1


def put(key: str) -> Any:
    return (yield Put(key, b"{}", ABSENT))


def test_a_scrape_takes_requests_that_do_not_grow_with_tables(lake: lv.Lake) -> None:
    for number in range(20):
        lake.create_table(f"more/t{number}", [{"id": 1}])
    with lv.connect(lake.root) as fresh:
        with inside(fresh).requests.counting() as made:
            found = fresh.metrics()
        assert made.total == found.values["lakevilla_scrape_requests"] == REQUESTS
        assert made.put == made.delete == 0
        with inside(fresh).requests.counting() as again:
            fresh.metrics()
        assert again.total == REQUESTS


def test_a_scrape_reads_each_leaf_of_a_large_head_once(tmp_path: Path) -> None:
    root = str(tmp_path / "lake")
    with lake_of(2000, root, commits=1) as writer, lv.connect(root) as fresh:
        with inside(fresh).requests.counting() as made:
            found = fresh.metrics().values
        assert made.total == found["lakevilla_scrape_requests"] > REQUESTS + 2
        assert found["lakevilla_tables"] == 2000
        assert found["lakevilla_tables_of_unknown_size"] == 1990
        commit_two(writer, real_tables(2000)[:2])
        with inside(fresh).requests.counting() as again:
            counted = fresh.metrics().values["lakevilla_scrape_requests"]
        assert again.total == counted
        assert REQUESTS < again.total < made.total


def test_metrics_of_a_root_without_a_lake_are_refused(tmp_path: Path) -> None:
    with lv.connect(tmp_path) as empty, pytest.raises(lv.InvalidOperation, match="has no lake"):
        empty.metrics()


def test_labels_with_quotes_can_be_parsed(tmp_path: Path) -> None:
    root = tmp_path / 'a "b"\\c'
    with lv.connect(root) as lake:
        lake.create_table("t", [{"id": 1}])
        families = list(text_string_to_metric_families(lake.metrics().prometheus()))
        assert {one.labels["lake"] for family in families for one in family.samples} == {str(root)}
        assert {family.name for family in families} <= GAUGES.keys()


def points(reader: InMemoryMetricReader) -> dict[str, dict[str, float]]:
    """Return the values of all gauges by name, and by the attribute beside the lake's."""
    data = reader.get_metrics_data()
    return {
        metric.name: {
            "".join(v for k, v in point.attributes.items() if k != "lake"): point.value
            for point in metric.data.data_points
        }
        for resource in (() if data is None else data.resource_metrics)
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_opentelemetry_collects_each_gauge_by_one_scrape(lake: lv.Lake) -> None:
    reader = InMemoryMetricReader()
    end = observe(lake, meter_provider=MeterProvider([reader]))
    with inside(lake).requests.counting() as made:
        found = points(reader)
        points(reader)
    assert made.total == REQUESTS
    assert found["lakevilla.table.files"] == {"sales/orders": 1, "stock": 1}
    assert found["lakevilla.up"] == {"": 1}
    assert 0 <= found["lakevilla.head.age"][""] < 60
    measured = {
        GAUGES[name].opentelemetry for name, value in lake.metrics().values.items() if value
    }
    assert measured >= {name for name, by_label in found.items() if any(by_label.values())}
    end()
    assert points(reader) == {}


def test_opentelemetry_shows_a_lake_whose_head_is_lost_as_down(lake: lv.Lake) -> None:
    reader = InMemoryMetricReader()
    observe(lake, meter_provider=MeterProvider([reader]), every_seconds=0)
    assert points(reader)["lakevilla.up"] == {"": 1}
    Path(lake.root, "_lakevilla/HEAD.json").write_bytes(b"damaged")
    assert points(reader) == {"lakevilla.up": {"": 0}}


def test_observe_refuses_no_lake_and_no_interval(lake: lv.Lake) -> None:
    with pytest.raises(lv.InvalidOperation, match="give the lakes"):
        observe()
    with pytest.raises(lv.InvalidOperation, match="every_seconds"):
        observe(lake, every_seconds=-1)

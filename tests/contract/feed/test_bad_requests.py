"""Arguments that the change feed refuses, and the errors that it raises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place, make_place


@pytest.fixture
def lake(request: pytest.FixtureRequest) -> lv.Lake:
    place: Place = make_place("memory", request)
    lake = place.connect()
    lake.create_table("orders", [{"id": 1}])
    lake.create_table("stock", [{"id": 1}])
    return lake


VERBS: dict[str, Callable[..., Any]] = {"changes": lv.Lake.changes, "follow": lv.Lake.follow}


@pytest.fixture(params=VERBS)
def ask(request: pytest.FixtureRequest, lake: lv.Lake) -> Callable[..., Any]:
    verb = VERBS[request.param]
    return lambda *given, **named: verb(lake, *given, **named)


@pytest.mark.parametrize(
    "given", ["orders", pa.table({"id": [1]}), [{"id": 1}], {"id": [1]}], ids=type
)
def test_the_feed_given_a_table_or_rows_names_txn_changes_in_its_error(
    ask: Callable[..., Any], given: Any
) -> None:
    with pytest.raises(lv.InvalidOperation, match=r"txn\.changes\('(orders|NAME)', since\)"):
        ask(given)


def test_the_feed_given_a_table_object_names_txn_changes_with_the_tables_name(
    lake: lv.Lake,
) -> None:
    with pytest.raises(lv.InvalidOperation, match=r"txn\.changes\('orders', since\)"):
        lake.changes(lake.table("orders"))  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [-1, 1.5, True, None, 2**70])
def test_a_version_that_is_no_whole_number_is_refused_by_the_feed(
    ask: Callable[..., Any], given: Any
) -> None:
    with pytest.raises(lv.InvalidOperation, match="must be a whole number"):
        ask(given)


def test_future_versions_and_times_are_refused_by_the_feed(ask: Callable[..., Any]) -> None:
    with pytest.raises(lv.VersionNotFound, match="global version 3, and the lake's newest is 2"):
        ask(3)
    with pytest.raises(lv.InvalidOperation, match="is in the future"):
        ask(datetime.now(UTC) + timedelta(hours=1))
    with pytest.raises(lv.InvalidOperation, match="no time zone"):
        ask(datetime.now())
    with pytest.raises(lv.VersionNotFound, match="as old as the requested time"):
        ask(datetime(2000, 1, 1, tzinfo=UTC))


def test_a_range_that_ends_before_it_begins_is_refused_by_the_feed(lake: lv.Lake) -> None:
    with pytest.raises(lv.InvalidOperation, match="since is global version 2, and until the older"):
        lake.changes(2, 1)
    with pytest.raises(lv.VersionNotFound, match="until is global version 9"):
        lake.changes(0, 9)
    with pytest.raises(lv.InvalidOperation, match="no time zone"):
        lake.changes(0, datetime.now())


def test_invalid_tables_and_columns_are_refused_when_the_feed_is_requested(
    ask: Callable[..., Any], lake: lv.Lake
) -> None:
    with pytest.raises(lv.TableNotFound, match="no table 'order'"):
        ask(0, tables=["order"])
    with pytest.raises(lv.TableNotFound, match="no table 'order'"):
        ask(0, columns={"order": ["id"]})
    for wrong in ("orders", [], [1], b"orders"):
        with pytest.raises(lv.InvalidOperation, match=r"tables (is a list of names|must be text)"):
            ask(0, tables=wrong)
    with pytest.raises(lv.InvalidOperation, match="list of names"):
        ask(0, columns="id")
    with pytest.raises(lv.InvalidOperation, match="no table name of the lake matches 'x"):
        lake.changes(0, tables=["x*"])


def test_reading_a_versions_rows_names_the_requested_column_that_it_lacks(lake: lv.Lake) -> None:
    first, _ = lake.changes(0, columns=["nothing"])
    with pytest.raises(lv.InvalidOperation, match="nothing"):
        first.tables["orders"]
    with pytest.raises(KeyError):
        first.tables["stock"]


def test_a_table_that_has_a_column_named_like_a_feed_column_is_refused_with_its_name(
    lake: lv.Lake,
) -> None:
    lake.create_table("odd", {"_commit_version": [1]})
    *_, last = lake.changes(0)
    with pytest.raises(lv.InvalidOperation, match="_commit_version"):
        last.tables["odd"]


def test_changes_and_follow_are_refused_on_a_tag(lake: lv.Lake) -> None:
    lake.tag("closing")
    then = lake.on("closing")
    for verb in (then.changes, then.follow):
        with pytest.raises(lv.InvalidOperation, match=r"tag 'closing' is one state .*main"):
            verb(0)
    assert [v.version for v in then.on("main").changes(0)] == [1, 2]


def test_follow_refuses_invalid_intervals_and_stop_events(lake: lv.Lake) -> None:
    for wrong in (0, -1, True, "1", None, float("nan"), float("inf")):
        with pytest.raises(lv.InvalidOperation, match="poll_seconds must be a number"):
            lake.follow(0, poll_seconds=wrong)  # type: ignore[arg-type]
    with pytest.raises(lv.InvalidOperation, match="absorb_seconds must be a number"):
        lake.follow(0, absorb_seconds=0)
    for wrong in (True, object(), asyncio.Event()):
        with pytest.raises(lv.InvalidOperation, match=r"threading\.Event"):
            lake.follow(0, stop=wrong)  # type: ignore[arg-type]
    with pytest.raises(lv.InvalidOperation, match="net must be True or False"):
        lake.changes(0, net="no")  # type: ignore[arg-type]

"""A tag absorbs commits of foreign clients: which tables' logs it reads for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.branches import states as taken_in
from tests.support.places import Place
from tests.support.tables import values
from tests.support.traces import cost


@pytest.fixture
def events() -> list[lv.Event]:
    return []


@pytest.fixture
def lake(shared_place: Place, events: list[lv.Event]) -> Iterator[lv.Lake]:
    """Return a lake with three tables; foreign commits have added a row to ``a`` and ``b/c``."""
    with shared_place.connect(on_event=events.append) as lake:
        for name in ("a", "b/c", "d"):
            lake.create_table(name, [{"id": 1}])
        for name in ("a", "b/c"):
            shared_place.write(name, [{"id": 2}])
        yield lake


def ids(lake: lv.Lake, name: str) -> list[int]:
    return values(lake.read(name))


def left_out(events: list[lv.Event]) -> list[str]:
    return [event.message for event in events if event.kind == "left_out"]


def test_a_tag_absorbs_foreign_commits_of_all_tables_by_default(
    lake: lv.Lake, shared_place: Place
) -> None:
    made = lake.tag("closing")
    then = lake.on("closing")
    assert made.version == 5  # the foreign commits have versions by then
    assert lake.history(1)[0].kind == "foreign"
    for name in ("a", "b/c"):
        shared_place.write(name, [{"id": 3}])
        lake.run(lambda txn, name=name: txn.append(name, [{"id": 4}]))
        assert (ids(then, name), ids(lake, name)) == ([1, 2], [1, 2, 3, 4])
    assert ids(then, "d") == [1]


@pytest.mark.parametrize(
    ("absorb", "a", "b"),
    [
        (["*"], [1, 2], [1, 2]),
        (["a"], [1, 2], [1]),
        (["b/*", "d"], [1], [1, 2]),
        ([], [1], [1]),
        ((), [1], [1]),
    ],
)
def test_a_tag_absorbs_only_foreign_commits_of_the_tables_named_in_absorb(
    lake: lv.Lake, events: list[lv.Event], absorb: Any, a: list[int], b: list[int]
) -> None:
    lake.tag("closing", absorb=absorb)
    then = lake.on("closing")
    assert (ids(then, "a"), ids(then, "b/c"), ids(then, "d")) == (a, b, [1])
    assert left_out(events) == []
    # The lake shows the rows left out of the tag: the next commit absorbs them.
    lake.run(lambda txn: txn.append("b/c", [{"id": 3}]))
    assert (ids(lake, "b/c"), ids(then, "b/c")) == ([1, 2, 3], b)


def test_a_foreign_commit_left_out_of_a_tag_stays_out_of_it_after_a_clean_up(lake: lv.Lake) -> None:
    lake.tag("closing", absorb=[])
    lake.run(lambda txn: txn.update("a", {"id": "id + 10"}, where="true"))
    for name in lake:
        lake[name].vacuum(0, dry_run=False, enforce_retention_duration=False)
    lake.gc()
    assert (ids(lake, "a"), ids(lake.on("closing"), "a")) == ([11, 12], [1])


def test_a_tag_of_some_tables_absorbs_foreign_commits_of_these_alone(lake: lv.Lake) -> None:
    lake.tag("some", tables=["a", "d"])
    assert ids(lake.on("some"), "a") == [1, 2]
    lake.tag("all", absorb=[])
    assert (ids(lake.on("all"), "a"), ids(lake.on("all"), "b/c")) == ([1, 2], [1])


def test_a_tag_of_too_many_tables_reads_no_log_and_reports_that(
    lake: lv.Lake, events: list[lv.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taken_in, "MOST_TABLES", 2)
    lake.tag("closing")
    assert (ids(lake.on("closing"), "a"), len(left_out(events))) == ([1], 1)
    assert "no log was read" in left_out(events)[0]
    lake.tag("one", absorb=["a"])
    lake.tag("few", tables=["a", "d"])
    lake.tag("each", absorb=["*"])
    assert ids(lake.on("one"), "a") == ids(lake.on("few"), "a") == [1, 2]
    assert ids(lake.on("each"), "b/c") == [1, 2]
    assert len(left_out(events)) == 1


def test_the_log_of_a_guarded_table_is_not_read_for_a_tag(local_place: Place) -> None:
    with local_place.connect() as lake:
        for name in ("a", "b"):
            lake.create_table(name, [{"id": 1}])
        lake.tag("warm")
        both = cost(lake, lambda: lake.tag("both"))
        lake.guard("a")
        lake.run(lambda txn: txn.append("a", [{"id": 2}]))  # HEAD has the guard from then on
        lake.tag("again")
        one = cost(lake, lambda: lake.tag("one"))
        assert (both.get, one.get, one.put) == (3, 2, 2)
        assert ids(lake.on("one"), "a") == [1, 2]


def test_a_tag_absorbs_foreign_commits_though_one_table_cannot_be_read(
    local_place: Place, events: list[lv.Event]
) -> None:
    with local_place.connect() as lake:
        lake.create_table("a", [{"id": 1}])
        lake.create_table("b", [{"id": 1}])
    local_place.write("b", [{"id": 2}])
    local_place.write("a", [{"id": 2}])
    Path(local_place.uri("a"), "_delta_log", f"{1:020}.json").write_text("no entry")
    with local_place.connect(on_event=events.append) as lake:
        lake.tag("closing")
        assert ids(lake.on("closing"), "b") == [1, 2]
    assert any(
        "table a is in the ref in the state that HEAD names" in said for said in left_out(events)
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"absorb": "a"}, "absorb is a list of names"),
        ({"absorb": [7]}, "absorb"),
        ({"absorb": ["nothing"]}, "absorb: no table name of the lake matches 'nothing'"),
        ({"absorb": ["a"], "at": 1}, "`absorb` includes the commits of other clients up to now"),
        ({"absorb": [], "at": 1}, "`absorb` includes the commits of other clients up to now"),
    ],
)
def test_invalid_values_of_absorb_are_refused(
    lake: lv.Lake, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match=said):
        lake.tag("closing", **options)
    assert lake.refs() == []

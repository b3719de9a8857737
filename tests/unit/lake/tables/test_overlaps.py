"""A table has its own directory: no table may be inside another one."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.global_log.head import Head, TableState, empty_head, successor
from lakevilla.lake.tables.dropped import (
    is_within,
    nested_tables,
    other_lakes,
    outer_paths,
    outer_table,
)
from lakevilla.lake.tables.overlaps import in_the_way, refuse_overlaps
from lakevilla.store.base import ANY
from lakevilla.store.effects import Program
from tests.support.by_hand import outcome
from tests.support.simulated.memory_lake import MemoryLake

ENTRY = f"_delta_log/{0:020}.json"


def head_with(**tables: TableState) -> Head:
    named = {location.replace("__", "/"): state for location, state in tables.items()}
    return successor(empty_head("lake", "root", "0", 1), nonce="1", now_ms=1, tables=named)


LIVE, DROPPED = TableState("id", 0), TableState("id", 0, dropped=True)
EMPTIED = TableState("id", 0, dropped=True, emptied_ms=1)


@pytest.mark.parametrize(
    ("head", "location", "why"),
    [
        (head_with(sales=LIVE), "sales/eu", "inside the directory of table sales"),
        (head_with(sales=DROPPED), "sales/eu", None),
        (head_with(sales__eu=LIVE), "sales", "would contain table sales/eu"),
        (head_with(sales__eu=DROPPED), "sales", "can be registered again"),
        (head_with(sales__eu=EMPTIED), "sales", None),
        (head_with(sales=LIVE), "sales2", None),
        (head_with(sales2=LIVE), "sales", None),
    ],
)
def test_a_location_inside_or_around_a_table_of_head_is_refused(
    head: Head, location: str, why: str | None
) -> None:
    found = outcome(in_the_way(location, head))
    assert (found is None) == (why is None)
    assert why is None or (found is not None and why in found)


@pytest.mark.parametrize(
    ("key", "location", "why"),
    [
        (f"x/{ENTRY}", "x/y", "a table outside of this lake, x"),
        (f"x/y/{ENTRY}", "x", "a table outside of this lake, x/y"),
        ("x/metadata/v1.metadata.json", "x/y", "a table outside of this lake, x"),
        ("x/_lakevilla/HEAD.json", "x/y", "inside another lake, x"),
        (ENTRY, "x", "the root of this lake is one itself"),
        ("x/part-0.parquet", "x", "holds files that no table names"),
        ("x/notes.txt", "x", None),
        ("x/_tmp/part-0.parquet", "x", None),
        ("y/part-0.parquet", "x", None),
    ],
)
def test_a_location_inside_or_around_tables_or_lakes_in_the_store_is_refused(
    key: str, location: str, why: str | None
) -> None:
    lake = MemoryLake(warm=False)
    lake.store.objects.clear()
    lake.store.put(key, b"{}", ANY)
    program: Program[None] = refuse_overlaps(location, None, "txn")
    if why is None:
        lake.peer().run(program)
        return
    with pytest.raises(lv.InvalidOperation, match=why):
        lake.peer().run(program)


def test_nested_tables_are_found_by_their_logs_and_by_head() -> None:
    keys = [f"a/{ENTRY}", f"a/b/{ENTRY}", "a/c/metadata/version-hint.text", "a/d/part-0.parquet"]
    found = nested_tables("a", keys, head_with(a__e=DROPPED, f=LIVE))
    assert found == ("a/b", "a/c", "a/e")
    assert is_within("a/b/part-0.parquet", found)
    assert not is_within("a/bb/part-0.parquet", found)


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("a/_lakevilla/HEAD.json", "a"),
        ("a/b/_lakevilla/heads/00000000000000000001.json", "a/b"),
        ("a/b/_lakevilla/lake.json", "a/b"),
        ("a/_lakevilla/lake.json", None),
        ("a/_lakevilla/branches/1/HEAD.json", None),
    ],
)
def test_another_lake_inside_a_directory_is_found_by_its_head_or_its_claims(
    key: str, place: str | None
) -> None:
    assert other_lakes("a", [key, "a/part-0.parquet"]) == (() if place is None else (place,))


def test_outer_table_returns_the_innermost_live_table_around_a_location() -> None:
    assert outer_paths("a/b/c") == ["a/b", "a"]
    assert outer_table("a/b/c", head_with(a=LIVE, a__b=DROPPED)) == "a"
    assert outer_table("a/b/c", None) is None

"""Pages of a lake's tables, while other clients commit between two pages."""

from __future__ import annotations

import base64
import random
from pathlib import Path

import pytest

import lakevilla as lv
from bench.size.many_tables import newest
from lakevilla.global_log import leaves
from tests.support.places import Place

ROWS = [{"id": 1}]


@pytest.fixture
def lake(local_place: Place, monkeypatch: pytest.MonkeyPatch) -> lv.Lake:
    """Return a lake with thirty tables in leaves, some with registered names."""
    monkeypatch.setattr(leaves, "INLINE_BYTES", 2000)
    monkeypatch.setattr(leaves, "LEAF_BYTES", 2000)
    lake = local_place.connect()
    with lake.transaction() as txn:
        for number in range(30):
            txn.create_table(f"{'ab'[number % 2]}/t{number:02}", ROWS)
    for number in (3, 8, 20):
        lake.rename_table(f"{'ab'[number % 2]}/t{number:02}", f"c/n{number:02}")
    assert len(newest(lake).tables.refs) > 2
    return lake


def names(lake: lv.Lake) -> list[str]:
    return [table.name for table in lake.tables()]


@pytest.mark.parametrize("limit", [1, 4, 7, 30, 100])
def test_pages_together_list_each_table_once(lake: lv.Lake, limit: int) -> None:
    found: list[str] = []
    after = None
    while True:
        page = lake.tables(limit=limit, after=after, details=False)
        assert len(page) <= limit
        found += [one.name for one in page]
        after = page.next
        if after is None:
            break
    assert found == sorted(names(lake))


def test_tables_can_be_listed_by_prefix_with_sizes_from_head(lake: lv.Lake) -> None:
    assert [one.name for one in lake.tables("c/")] == ["c/n03", "c/n08", "c/n20"]
    first, *_ = lake.tables("b/", limit=3, details=False)
    assert (first.name, first.rows, first.files, first.guarded) == ("b/t01", 1, 1, False)
    assert first.uri == lake.table("b/t01").uri
    made = lake.history()[-1]
    assert (first.changed_version, first.changed, first.changed_by) == (
        made.version,
        made.timestamp,
        "transaction",
    )
    opened = lake.tables("b/", limit=3)
    assert opened[0].schema.names == ["id"]
    assert opened.next == lake.tables("b/", limit=3, details=False).next
    assert not lake.tables("nothing/")
    assert lake.tables("nothing/", limit=3).next is None


def test_tables_present_throughout_paging_are_listed_once_despite_commits(lake: lv.Lake) -> None:
    draw = random.Random(9)
    always = {f"{'ab'[n % 2]}/t{n:02}" for n in range(30) if n % 3 == 1} - {"b/t03", "a/t20"}
    found: list[str] = []
    after, number = None, 0
    while True:
        page = lake.tables(limit=3, after=after, details=draw.random() < 0.3)
        found += [one.name for one in page]
        if (after := page.next) is None:
            break
        number += 1
        lake.create_table(f"{draw.choice('abc')}/new{number}", ROWS)
        dropped = draw.choice([name for name in names(lake) if name not in always])
        lake.drop_table(dropped)
    assert len(found) == len(set(found))
    assert always <= set(found)


def test_branches_and_tags_have_their_own_pages(lake: lv.Lake) -> None:
    lake.tag("then")
    lake.branch("etl")
    lake.on("etl").create_table("a/only", ROWS)
    lake.drop_table("a/t00")
    for ref, first in (("then", "a/t00"), ("etl", "a/only"), ("main", "a/t02")):
        page = lake.on(ref).tables(limit=1, details=False)
        assert [one.name for one in page] == [first]
        assert lake.on(ref).tables(limit=1, after=page.next)[0].name > first


def test_invalid_page_tokens_are_refused(lake: lv.Lake, tmp_path: Path) -> None:
    token = lake.tables(limit=1, details=False).next
    assert token is not None

    def made(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode()

    for wrong in ("", "x", "a b", token[:-3], made("{}"), made("[]"), made('[1,"x"]'), 5, "é"):
        with pytest.raises(lv.InvalidOperation, match=r"`next` of a page"):
            lake.tables(after=wrong)  # type: ignore[arg-type]
    with pytest.raises(lv.InvalidOperation, match="format 0"):
        lake.tables(after=made('[0,"x","y"]'))
    with lv.connect(str(tmp_path / "other")) as other:
        with pytest.raises(lv.InvalidOperation, match=newest(lake).lake_id):
            other.tables(after=token)
        other.create_table("t", ROWS)
        with pytest.raises(lv.InvalidOperation, match="token of lake"):
            other.tables(after=token)
    for limit in (0, -1, 1.5, "2"):
        with pytest.raises(lv.InvalidOperation, match="limit"):
            lake.tables(limit=limit)  # type: ignore[arg-type]

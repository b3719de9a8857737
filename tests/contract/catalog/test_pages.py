"""Pages of a lake's tables, all of one state, while other clients commit between two pages."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from bench.size.many_tables import newest
from lakevilla.global_log import leaves
from tests.support.places import Place
from tests.support.stores import Later

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


def rest(lake: lv.Lake, page: lv.TablePage[Any], details: bool = False) -> list[str]:
    """Return the names on the pages after ``page``."""
    found: list[str] = []
    while page.next is not None:
        page = lake.tables(limit=3, after=page.next, details=details)
        found += [one.name for one in page]
    return found


def test_all_pages_show_the_state_of_the_first_whatever_is_committed(lake: lv.Lake) -> None:
    draw = random.Random(9)
    lake.branch("etl")
    for line in (lake, lake.on("etl")):
        before = sorted(names(line))
        page = line.tables(limit=3, details=False)
        version = page.version
        found = [one.name for one in page]
        number = 0
        while page.next is not None:
            number += 1
            line.create_table(f"{draw.choice('abc')}/new{number}", ROWS)
            # A dropped table is made again, and others are written.
            dropped = draw.choice([name for name in names(line) if not name.startswith("c/n")])
            line.drop_table(dropped)
            line.run(lambda txn: txn.append("c/n08", ROWS))
            page = line.tables(limit=3, after=page.next, details=draw.random() < 0.3)
            assert page.version == version
            found += [one.name for one in page]
        assert number > 8
        assert found == before
        assert found != sorted(names(line))


@pytest.mark.parametrize("details", [True, False])
def test_a_table_made_and_one_dropped_between_two_pages_are_not_both_shown(
    quick_place: Place, details: bool
) -> None:
    with quick_place.connect() as lake, quick_place.connect() as other:
        for name in ("a", "b", "d", "e"):
            lake.create_table(name, ROWS)
        first = lake.tables(limit=2, details=details)
        other.run(lambda txn: txn.append("e", ROWS))
        other.create_table("c", ROWS)
        other.drop_table("d")
        second = lake.tables(limit=9, after=first.next, details=details)
        assert [one.name for one in (*first, *second)] == ["a", "b", "d", "e"]
        assert second.version == first.version == 4
        assert [one.name for one in lake.tables()] == ["a", "b", "c", "e"]
        if not details:
            listed = second[-1]
            assert isinstance(listed, lv.ListedTable)
            assert (listed.rows, listed.format) == (1, quick_place.format)
        else:
            assert lake.tables(after=first.next)[1].version == 0  # of the state before the append


def test_a_page_after_a_rename_is_refused_and_paging_begins_again(lake: lv.Lake) -> None:
    page = lake.tables(limit=3, details=False)
    lake.create_table("z/other", ROWS)
    lake.rename_table("b/t11", "a/t00x")  # from behind the page to before its end
    with pytest.raises(lv.VersionNotFound, match=r"renamed.*begin with the first page again"):
        lake.tables(limit=3, after=page.next)
    again = lake.tables(limit=3, details=False)
    assert [*(one.name for one in again), *rest(lake, again)] == sorted(names(lake))


def test_tables_registered_between_two_pages_are_left_out(lake: lv.Lake, tmp_path: Path) -> None:
    with lv.connect(str(tmp_path / "other")) as other:
        other.create_table("t", ROWS)
        uri = other.table("t").uri
        other.recover()
        other.unregister("t")
    before = sorted(names(lake))
    page = lake.tables(limit=3, details=False)
    lake.register("c/elsewhere", uri)
    assert [*(one.name for one in page), *rest(lake, page)] == before
    assert "c/elsewhere" in names(lake)


def test_a_clone_made_between_two_pages_is_not_shown(lake: lv.Lake) -> None:
    before = sorted(names(lake))
    page = lake.tables(limit=3, details=False)
    lake.create_table("b/made", ROWS)
    lake.clone("b/t11", "b/twin")
    assert [*(one.name for one in page), *rest(lake, page)] == before
    page = lake.tables(limit=3, details=False)
    before = sorted(names(lake))
    lake.run(lambda txn: txn.append("b/twin", ROWS))  # its first write makes it a table
    assert [*(one.name for one in page), *rest(lake, page)] == before
    lake.drop_table("b/twin")
    assert "b/twin" in rest(lake, page)


def test_a_page_of_a_version_that_is_not_kept_is_refused() -> None:
    clock = Later()
    with lv.connect("memory://pages/forgotten") as lake:
        clock.of(lake)
        for name in "abc":
            lake.create_table(name, ROWS)
        page = lake.tables(limit=1, details=False)
        for _ in range(60):
            lake.run(lambda txn: txn.append("a", ROWS))
        assert [one.name for one in lake.tables(after=page.next)] == ["b", "c"]
        clock.ahead_seconds = 8 * 24 * 3600.0
        lake.run(lambda txn: txn.append("a", ROWS))
        lake.gc()
        lake.gc()
        with pytest.raises(
            lv.VersionNotFound, match=r"global version 3.*not kept any more.*first page again"
        ):
            lake.tables(after=page.next)


def test_a_page_of_another_branch_or_of_one_that_was_rebased_is_refused(lake: lv.Lake) -> None:
    lake.branch("etl")
    page = lake.tables(limit=1, details=False)
    on_branch = lake.on("etl").tables(limit=1, details=False)
    with pytest.raises(lv.InvalidOperation, match="another branch or tag"):
        lake.on("etl").tables(after=page.next)
    with pytest.raises(lv.InvalidOperation, match="another branch or tag"):
        lake.tables(after=on_branch.next)
    lake.run(lambda txn: txn.append("c/n08", ROWS))
    lake.rebase("etl")
    with pytest.raises(lv.InvalidOperation, match="rebased since: begin with the first page"):
        lake.on("etl").tables(after=on_branch.next)
    lake.tag("then")
    tagged = lake.on("then").tables(limit=1, details=False)
    lake.delete_ref("then")
    lake.run(lambda txn: txn.append("c/n08", ROWS))
    lake.tag("then")
    with pytest.raises(lv.VersionNotFound, match="begin with the first page"):
        lake.on("then").tables(after=tagged.next)


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

    for wrong in ("", "x", "a b", token[:-3], made("{}"), made("[]"), made('[2,"x"]'), 5, "é"):
        with pytest.raises(lv.InvalidOperation, match=r"`next` of a page"):
            lake.tables(after=wrong)  # type: ignore[arg-type]
    with pytest.raises(lv.InvalidOperation, match="format 1"):
        lake.tables(after=made('[1,"x","y"]'))
    with lv.connect(str(tmp_path / "other")) as other:
        with pytest.raises(lv.InvalidOperation, match=newest(lake).lake_id):
            other.tables(after=token)
        other.create_table("t", ROWS)
        with pytest.raises(lv.InvalidOperation, match="token of lake"):
            other.tables(after=token)
    for limit in (0, -1, 1.5, "2"):
        with pytest.raises(lv.InvalidOperation, match="limit"):
            lake.tables(limit=limit)  # type: ignore[arg-type]


def test_a_view_whose_name_a_table_has_taken_since_is_not_opened_as_a_table(tmp_path: Path) -> None:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("a", {"n": [1]})
        session = lake.session()
        session.sql("CREATE VIEW f AS SELECT n FROM a")
        lake.create_table("g", {"n": [2]})
        first = lake.tables(limit=1)
        session.sql("DROP VIEW f")
        session.sql("CREATE TABLE f AS SELECT 9 AS y")
        assert [table.name for table in lake.tables(after=first.next)] == ["g"]

"""A map in HEAD that is cut into leaves has the content of a plain map, in pieces of limited
size.
"""

import bisect
import sys
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakevilla.errors import CorruptObject
from lakevilla.global_log import head as head_module
from lakevilla.global_log import leaves
from lakevilla.global_log.head import (
    CommitSummary,
    Head,
    NameMap,
    PageRef,
    TableMap,
    TableState,
    Touch,
    empty_head,
    overfull,
    split_page,
    successor,
)
from lakevilla.store.codec import decode, encode
from tests.support.search import how_many

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
CHANGES = st.lists(
    st.dictionaries(NAMES, st.one_of(st.none(), st.text(max_size=8)), max_size=6), max_size=12
)


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch):
    monkeypatch.setattr(leaves, "INLINE_BYTES", 60)
    monkeypatch.setattr(leaves, "LEAF_BYTES", 90)


def stored(found, made, bodies):
    """Store the new leaves of the map; return the map as it is read back."""
    for ref in found.unread():
        found.take(ref, bodies[ref.key])
    plan = found.planned(made)
    if plan is not None:
        bodies.update(plan.bodies)
        found.settle(plan)
    wire = msgspec.json.decode(msgspec.json.encode(found.to_wire()))
    return type(found).from_wire(wire)


def fetch(found, bodies, names=None):
    missing = found.missing(names)
    for ref in missing:
        found.take(ref, bodies[ref.key])
    return missing


@settings(max_examples=how_many(50, whole=300), deadline=None)
@given(CHANGES)
def test_a_map_in_leaves_has_the_content_of_a_plain_map(changes):
    plain, found, bodies = {}, NameMap(), {}
    for made, change in enumerate(changes):
        plain = {k: v for k, v in (plain | change).items() if v is not None}
        found = stored(found.updated(change), made, bodies)
        for name in [*change, *plain][:8]:
            fetch(found, bodies, [name])
            assert found.get(name) == plain.get(name)
            assert (name in found) == (name in plain)
        whole = NameMap.from_wire(msgspec.json.decode(msgspec.json.encode(found.to_wire())))
        fetch(whole, bodies)
        assert dict(whole) == plain
        assert len(whole) == len(plain)
        assert bool(whole) == bool(plain)


def test_a_change_rewrites_only_the_leaves_that_it_touches():
    bodies = {}
    whole = TableMap({f"t{n:03}": TableState(f"id{n}", n) for n in range(40)})
    found = stored(whole, 1, bodies)
    before, stored_before = found.refs, len(bodies)
    assert len(before) > 10
    found = stored(found.updated({"t007": TableState("id7", 8)}), 2, bodies)
    assert len(bodies) == stored_before + 1
    assert sum(a != b for a, b in zip(before, found.refs, strict=True)) == 1
    assert [ref.made for ref in found.refs if ref not in before] == [2]


def test_writing_an_unchanged_value_rewrites_no_leaf():
    bodies = {}
    found = stored(TableMap({f"t{n}": TableState("id", n) for n in range(9)}), 1, bodies)
    again = stored(found.updated({"t3": TableState("id", 3)}), 2, bodies)
    assert again.refs == found.refs


def test_a_leaf_that_outgrows_its_limit_is_cut_into_smaller_ones():
    bodies, found = {}, NameMap()
    for number in range(200):
        found = stored(found.updated({f"n{number * 7919 % 1000:04}": "v" * 5}), number, bodies)
    kept = [len(bodies[ref.key]) for ref in found.refs]
    assert max(kept) <= leaves.LEAF_BYTES
    assert min(kept) * 4 > leaves.LEAF_BYTES
    firsts = [ref.first for ref in found.refs]
    for number in range(200):
        name = f"n{number * 7919 % 1000:04}"
        ref = found.refs[bisect.bisect_right(firsts, name) - 1]
        assert fetch(found, bodies, [name]) in ([ref], [])


def test_a_map_never_reports_a_table_of_an_unfetched_leaf_as_absent():
    bodies = {}
    found = stored(TableMap({f"t{n}": TableState("id", n) for n in range(9)}), 1, bodies)
    for look in (
        lambda: "t3" in found,
        lambda: found.get("absent"),
        lambda: found["t3"],
        lambda: list(found),
        lambda: len(found),
        lambda: found.items() >= set(),
    ):
        with pytest.raises(AssertionError, match="was not fetched"):
            look()
    assert found.cached() == {}
    fetch(found, bodies, ["t3"])
    assert found["t3"] == TableState("id", 3)
    assert 0 < len(found.cached()) < 9


def test_leaves_fetched_by_another_map_of_the_lake_are_not_fetched_again():
    bodies = {}
    old = stored(TableMap({f"t{n}": TableState("id", n) for n in range(9)}), 1, bodies)
    fetch(old, bodies)
    new = stored(old.updated({"t3": TableState("id", 4)}), 2, bodies)
    new.share(old)
    missing = new.missing()
    assert [ref.made for ref in missing] == [2]


def test_threads_that_fetch_leaves_of_one_map_concurrently_lose_none():
    bodies = {}
    cut = stored(TableMap({f"t{n:04}": TableState("id", n) for n in range(900)}), 1, bodies)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(5):
                found = TableMap.from_wire([list(msgspec.to_builtins(ref)) for ref in cut.refs])

                def fetched(thread, found=found):
                    for ref in found.refs[thread::4]:
                        found.take(ref, bodies[ref.key])

                list(pool.map(fetched, range(4)))
                assert found.missing() == []
    finally:
        sys.setswitchinterval(interval)


def test_a_leaf_whose_content_does_not_match_its_name_is_corrupt():
    bodies = {}
    found = stored(TableMap({f"t{n}": TableState("id", n) for n in range(9)}), 1, bodies)
    ref = found.refs[0]
    with pytest.raises(CorruptObject, match="damaged or replaced by hand") as caught:
        found.take(ref, bodies[found.refs[1].key])
    assert caught.value.key == ref.key


@pytest.mark.parametrize(
    "listed", ['[["b",1,"00"]]', '[["",1,"00"],["b",1,"00"],["b",1,"01"]]', '[["",1]]', "[]", "7"]
)
def test_a_malformed_list_of_leaves_is_corrupt(listed):
    body = encode(empty_head("lake", "root", "0", 1)).decode()
    broken = body.replace('"root":"root"', f'"root":"root","tables":{listed}')
    with pytest.raises(CorruptObject, match="not a valid head"):
        decode("_lakevilla/HEAD.json", broken.encode(), Head)


def test_a_map_below_the_size_limit_is_stored_within_head():
    states = {"b": TableState("id", 1)}
    head = successor(empty_head("l", "r", "0", 1), nonce="1", now_ms=1, tables=states)
    assert head.tables.planned(1) is None
    assert b'"tables":{"b":{"table_id":"id","published":1}}' in encode(head)
    assert decode("HEAD", encode(head), Head) == head


def wide(sequence, tables):
    touched = {f"sales/orders_{n}": Touch(published=sequence) for n in range(tables)}
    return CommitSummary(sequence, 0, "transaction", f"txn{sequence}", "00", touched)


def test_commits_to_many_tables_move_to_pages_before_head_grows_large():
    head = empty_head("lake", "root", "0", 1)
    pages = 0
    for sequence in range(1, 120):
        page = None
        if overfull(head):
            left = split_page(head, "n", 1)
            assert left.commits == head.commits[: len(left.commits)]
            first, last = left.commits[0], left.commits[-1]
            page = PageRef("n", first.sequence, last.sequence, 0, 0)
            pages += 1
        head = successor(
            head, nonce=str(sequence), now_ms=sequence, commits=[wide(sequence, 100)], page=page
        )
        assert head.commits[-1].sequence == sequence
        assert head.page is None or head.commits[0].sequence == head.page.last_sequence + 1
        assert len(encode(head)) < head_module.COMMITS_BYTES * 1.2
    assert 2 < pages < 20


def test_a_commit_wider_than_the_limit_moves_to_a_page_after_the_next_commit():
    head = empty_head("lake", "root", "0", 1)
    head = successor(head, nonce="1", now_ms=1, commits=[wide(1, 5000)])
    assert not overfull(head), "the last commit tells what time HEAD is of"
    head = successor(head, nonce="2", now_ms=2, commits=[wide(2, 1)])
    assert overfull(head)
    assert [commit.sequence for commit in split_page(head, "n", 1).commits] == [1]
    page = PageRef("n", 1, 1, 0, 0)
    head = successor(head, nonce="3", now_ms=3, commits=[wide(3, 1)], page=page)
    assert [commit.sequence for commit in head.commits] == [2, 3]

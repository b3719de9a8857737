"""An agent changes a branch of its own, and the operator's checks decide what is merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.serve.agents.checks import checks_of
from lakevilla.serve.agents.limits import AgentLimits
from lakevilla.serve.agents.reader import Reader
from lakevilla.serve.agents.work import Work

CHECKS = {"not_negative": "SELECT min(qty) >= 0 FROM stock"}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 2}])
        yield lake


@pytest.fixture
def work(lake: lv.Lake) -> Work:
    return Work(Reader(lake, AgentLimits()), CHECKS)


def rows(lake: lv.Lake) -> dict[str, int]:
    return {one["sku"]: one["qty"] for one in lake.read("stock").to_pylist()}


def test_changes_are_seen_on_the_branch_alone_until_they_are_merged(
    lake: lv.Lake, work: Work
) -> None:
    done = work.execute("UPDATE stock SET qty = 1 WHERE sku = 'jam'")
    assert done == {"branch": work.branch, "rows_updated": 1}
    assert rows(lake) == {"tea": 5, "jam": 2}
    assert rows(lake.on(work.branch or "")) == {"tea": 5, "jam": 1}
    assert work.changes("stock", ["sku"])["rows"] == [
        ["jam", 2, "update_preimage"],
        ["jam", 1, "update_postimage"],
    ]
    merged = work.merge({})
    assert merged["checks"] == ["not_negative"]
    assert rows(lake) == {"tea": 5, "jam": 1}
    assert lake.history(1)[0].merged == merged["merged"]
    assert (work.branch, lake.refs()) == (None, [])


def test_a_merge_that_fails_a_check_changes_nothing_and_names_it(lake: lv.Lake, work: Work) -> None:
    work.execute("UPDATE stock SET qty = qty - 4")
    with pytest.raises(lv.AuditFailed, match="not_negative: SELECT min") as raised:
        work.merge({})
    assert raised.value.failed == ["not_negative"]
    assert rows(lake) == {"tea": 5, "jam": 2}
    assert work.branch is not None, "the agent mends it there"
    work.execute("UPDATE stock SET qty = 0 WHERE qty < 0")
    work.merge({})
    assert rows(lake) == {"tea": 1, "jam": 0}


def test_a_check_for_no_rows_fails_by_one_row(lake: lv.Lake) -> None:
    checks = checks_of([], ["none=SELECT * FROM stock WHERE qty < 0 -- sold too much"], None)
    work = Work(Reader(lake, AgentLimits()), checks)
    work.execute("UPDATE stock SET qty = -1 WHERE sku = 'jam'")
    with pytest.raises(lv.AuditFailed, match="none: "):
        work.merge({})
    work.execute("UPDATE stock SET qty = 1 WHERE sku = 'jam'")
    work.merge({})
    assert rows(lake) == {"tea": 5, "jam": 1}


def test_checks_see_what_the_lake_has_got_meanwhile(lake: lv.Lake, work: Work) -> None:
    work.execute("INSERT INTO stock VALUES ('gin', 1)")
    lake.run(lambda txn: txn.append("stock", [{"sku": "rum", "qty": -1}]))
    with pytest.raises(lv.AuditFailed):
        work.merge({})
    assert set(rows(lake)) == {"tea", "jam", "rum"}


def test_without_checks_a_person_merges(lake: lv.Lake) -> None:
    work = Work(Reader(lake, AgentLimits()), {})
    work.execute("DELETE FROM stock")
    with pytest.raises(lv.InvalidOperation, match=f"lakevilla merge .* {work.branch}"):
        work.merge({})
    assert rows(lake) == {"tea": 5, "jam": 2}


@pytest.mark.parametrize(
    "broken", ["SELECT min(qty) >= 0 FROM stok", "SELECT 1", "SELECT NULL", "SELECT qty FROM stock"]
)
def test_a_check_that_gives_no_boolean_passes_nothing(lake: lv.Lake, broken: str) -> None:
    work = Work(Reader(lake, AgentLimits()), {"good": "SELECT true", "broken": broken})
    work.execute("DELETE FROM stock")
    with pytest.raises(lv.LakeVillaError):
        work.merge({})
    assert rows(lake) == {"tea": 5, "jam": 2}


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE stock",
        "DROP TABLE stock; CREATE VIEW stock AS SELECT 'tea' AS sku, 1 AS qty",
        "CREATE TABLE more (a INT)",
    ],
)
def test_a_check_of_the_catalog_holds_the_tables_together(lake: lv.Lake, change: str) -> None:
    checks = {"tables": "SELECT list(name ORDER BY name) = ['stock'] FROM lakevilla_tables"}
    work = Work(Reader(lake, AgentLimits()), checks)
    work.execute(change)
    with pytest.raises(lv.AuditFailed):
        work.merge({})
    assert rows(lake) == {"tea": 5, "jam": 2}


def test_rows_that_both_sides_have_changed_are_a_conflict(lake: lv.Lake, work: Work) -> None:
    work.execute("UPDATE stock SET qty = 1 WHERE sku = 'jam'")
    lake.run(lambda txn: txn.update("stock", {"qty": "9"}, where="sku = 'jam'"))
    verbs: list[Callable[..., object]] = [work.merge, work.rebase]
    for verb in verbs:
        with pytest.raises(lv.MergeConflict):
            verb({"stock": ["sku"]})
    assert rows(lake) == {"tea": 5, "jam": 9}


def test_a_rebase_brings_what_others_have_committed(lake: lv.Lake, work: Work) -> None:
    work.execute("INSERT INTO stock VALUES ('gin', 1)")
    lake.run(lambda txn: txn.append("stock", [{"sku": "rum", "qty": 3}]))
    branch = work.branch or ""
    assert work.rebase({})["branch"] == branch
    assert rows(lake.on(branch)) == {"tea": 5, "jam": 2, "gin": 1, "rum": 3}
    assert [row[0] for row in work.changes("stock", [])["rows"]] == ["gin"]


def test_each_session_has_a_branch_of_its_own(lake: lv.Lake, work: Work) -> None:
    other = Work(Reader(lake, AgentLimits()), CHECKS, "other")
    work.execute("DELETE FROM stock WHERE sku = 'tea'")
    other.execute("DELETE FROM stock WHERE sku = 'jam'")
    assert rows(lake.on(work.branch or "")) == {"jam": 2}
    assert rows(lake.on(other.branch or "")) == {"tea": 5}
    other.discard()
    assert [one.name for one in lake.refs()] == [work.branch]


def test_a_session_goes_on_with_the_branch_that_it_is_given(lake: lv.Lake) -> None:
    first = Work(Reader(lake, AgentLimits()), CHECKS, name="fix")
    assert first.branch is None, "nothing is made before something is changed"
    first.execute("DELETE FROM stock WHERE sku = 'tea'")
    second = Work(Reader(lake, AgentLimits()), CHECKS, name="fix")
    assert second.branch == "fix"
    second.merge({})
    assert rows(lake) == {"jam": 2}
    assert second.execute("DELETE FROM stock")["branch"] == "fix"


@pytest.mark.parametrize("name", ["main", "monday"])
def test_a_session_takes_no_state_that_is_no_branch(lake: lv.Lake, name: str) -> None:
    lake.tag("monday")
    with pytest.raises(lv.InvalidOperation, match="no branch"):
        Work(Reader(lake, AgentLimits()), CHECKS, name=name)


@pytest.mark.parametrize("verb", ["execute", "changes", "merge", "rebase", "discard"])
def test_a_branch_that_somebody_has_ended_is_left(lake: lv.Lake, work: Work, verb: str) -> None:
    calls: dict[str, Callable[[], object]] = {
        "execute": lambda: work.execute("DELETE FROM stock"),
        "changes": lambda: work.changes("", []),
        "merge": lambda: work.merge({}),
        "rebase": lambda: work.rebase({}),
        "discard": work.discard,
    }
    if verb != "execute":
        with pytest.raises(lv.InvalidOperation, match="nothing was changed yet"):
            calls[verb]()
    work.execute("INSERT INTO stock VALUES ('gin', 1)")
    lake.delete_ref(work.branch or "")
    with pytest.raises(lv.RefNotFound, match="the next execute begins another"):
        calls[verb]()
    assert work.branch is None
    assert rows(lake) == {"tea": 5, "jam": 2}
    work.execute("INSERT INTO stock VALUES ('gin', 1)")
    work.merge({})
    assert rows(lake) == {"tea": 5, "jam": 2, "gin": 1}

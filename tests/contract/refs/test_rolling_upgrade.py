"""``Settings(format_limit=)``: a client stores nothing that older clients could not read."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.settings import NEWEST_FORMAT
from tests.support.inside import inside

FORMATS = pytest.mark.parametrize("format", ["delta", "iceberg"])


def limited(root: Path, limit: int) -> lv.Lake:
    return lv.connect(str(root), settings=lv.Settings(format_limit=limit))


def bodies(root: Path) -> dict[str, int]:
    """Return the format of each object in the lake's own directories that has one."""
    found = {}
    for path in (root / "_lakevilla").rglob("*.json"):
        body = json.loads(path.read_text())
        if isinstance(body, dict) and "format" in body:
            found[str(path.relative_to(root))] = body["format"]
    return found


def tags(lake: lv.Lake) -> None:
    lake.tag("v1")


def clones(lake: lv.Lake) -> None:
    lake.clone("t", "copies/t")


def makes_a_view(lake: lv.Lake) -> None:
    with lake.session() as session:
        session.sql("CREATE VIEW v AS SELECT id FROM t")


def rebases(lake: lv.Lake) -> None:
    lake.branch("etl")
    lake.on("etl").run(lambda txn: txn.append("t", [{"id": 7}]))
    lake.run(lambda txn: txn.append("t", [{"id": 8}]))
    lake.rebase("etl")


CASES: dict[str, tuple[Callable[[lv.Lake], None], int, str]] = {
    "clone": (clones, 3, "a clone"),
    "view": (makes_a_view, 6, "a view of SQL"),
    "rebase": (rebases, 7, "a field that older clients would drop"),
}


@FORMATS
@pytest.mark.cases(None)
@pytest.mark.parametrize("case", CASES)
def test_a_client_with_a_limit_is_told_what_needs_a_newer_format(
    tmp_path: Path, format: str, case: str
) -> None:
    work, needed, what = CASES[case]
    with limited(tmp_path, needed - 1) as lake:
        lake.create_table("t", [{"id": 1}], format=format)  # type: ignore[arg-type]
        with pytest.raises(lv.InvalidOperation) as raised:
            work(lake)
        for told in (what, f"clients of format {needed - 1}", f"format_limit={needed}"):
            assert told in raised.value.message
        for where in [lake, *(lake.on(one.name) for one in lake.refs() if one.kind == "branch")]:
            where.run(lambda txn: txn.append("t", [{"id": 9}]))
            assert {1, 9} <= set(where.read("t")["id"].to_pylist())
        assert max(bodies(tmp_path).values()) < needed
    with limited(tmp_path / "newer", needed) as lake:
        lake.create_table("t", [{"id": 1}], format=format)  # type: ignore[arg-type]
        work(lake)
        assert max(bodies(tmp_path / "newer").values()) == needed


@FORMATS
def test_a_client_with_the_lowest_limit_does_what_needs_nothing_newer(
    tmp_path: Path, format: str
) -> None:
    with limited(tmp_path, 2) as lake:
        lake.create_table("t", [{"id": 1}], format=format)  # type: ignore[arg-type]
        lake.run(lambda txn: txn.append("t", [{"id": 2}]))
        lake.run(lambda txn: txn.update("t", {"id": "id + 10"}, where="id = 2"))
        tags(lake)
        lake.branch("etl")
        lake.on("etl").run(lambda txn: txn.delete("t", where="id = 1"))
        lake.merge("etl")
        lake.table("t").optimize(features=lv.Feature.R | lv.Feature.CT | lv.Feature.I)
        lake.table("t").vacuum(dry_run=False)
        assert lake.maintain().ok
        assert lake.read("t")["id"].to_pylist() == [12]
        assert max(bodies(tmp_path).values()) == 2


def test_threads_that_change_a_row_share_no_version_below_the_format_for_it(
    tmp_path: Path,
) -> None:
    def most(limit: int) -> int:
        root = tmp_path / str(limit)
        with limited(root, limit) as lake:
            lake.create_table("t", [{"id": 1, "n": 0}])
            start = threading.Barrier(4)

            def adds() -> None:
                start.wait()
                for _ in range(3):
                    lake.run(lambda txn: txn.update("t", {"n": "n + 1"}, where="id = 1"))

            threads = [threading.Thread(target=adds) for _ in range(4)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            assert lake.read("t")["n"].to_pylist() == [12]
            assert inside(lake).context.held is not None
            return max(bodies(root).values())

    assert most(3) <= 3
    assert most(NEWEST_FORMAT) >= 2


@pytest.mark.parametrize("verb", ["rebase", "keep", "commit"])
def test_a_branch_keeps_what_a_newer_client_has_noted_in_its_head(
    tmp_path: Path, verb: str
) -> None:
    noted = {"colour": {"red": [1, 2.5]}}
    with lv.connect(tmp_path) as lake:
        lake.create_table("t", [{"id": 1}])
        lake.branch("etl")
        (own,) = (tmp_path / "_lakevilla" / "branches").glob("*/HEAD.json")
        body = json.loads(own.read_text())
        own.write_text(json.dumps({**body, "format": NEWEST_FORMAT, "kept": noted}))
        lake.run(lambda txn: txn.append("t", [{"id": 2}]))
        if verb == "commit":
            lake.on("etl").run(lambda txn: txn.append("t", [{"id": 3}]))
        else:
            getattr(lake, verb)("etl")
        newest = max((tmp_path / "_lakevilla" / "branches").glob("*/HEAD.json"))
        after = json.loads(newest.read_text())
        assert (newest != own) == (verb != "commit")
        assert (after["kept"], after["format"]) == (noted, NEWEST_FORMAT)


def test_a_past_version_of_a_table_of_a_branch_that_needs_more_is_refused(tmp_path: Path) -> None:
    with lv.connect(tmp_path) as lake:
        lake.create_table("t", [{"id": 1}])
        lake.branch("etl")
        lake.on("etl").create_table("own", [{"id": 1}])
        version = lake.on("etl").snapshot().version
        lake.on("etl").run(lambda txn: txn.append("own", [{"id": 2}]))
    (path,) = (tmp_path / "_lakevilla" / "branches").glob("*/HEAD.json")
    body = json.loads(path.read_text())
    body["tables"]["own"]["needs"] = ["teleport"]
    path.write_text(json.dumps({**body, "format": NEWEST_FORMAT}))
    with lv.connect(tmp_path) as lake:
        for at in (version, version + 1):
            with pytest.raises(lv.UnsupportedFormat, match="table own needs 'teleport'"):
                lake.on("etl").snapshot(version=at).read("own")
        assert lake.on("etl").snapshot(version=version).read("t").num_rows == 1


@FORMATS
@pytest.mark.filterwarnings("ignore:table t is left out")
def test_a_table_that_needs_more_is_refused_by_each_verb_and_the_others_are_used(
    tmp_path: Path, format: str
) -> None:
    with lv.connect(tmp_path) as lake:
        for name in ("t", "u"):
            lake.create_table(name, [{"id": 1}], format=format)  # type: ignore[arg-type]
    path = tmp_path / "_lakevilla" / "HEAD.json"
    body = json.loads(path.read_text())
    body["tables"]["t"]["needs"] = ["teleport"]
    path.write_text(json.dumps({**body, "format": NEWEST_FORMAT}))
    before = {one: one.read_bytes() for one in (tmp_path / "t").rglob("*") if one.is_file()}
    with lv.connect(tmp_path) as lake:
        refused: tuple[Callable[[], object], ...] = (
            lambda: lake.read("t"),
            lambda: lake.run(lambda txn: txn.append("t", [{"id": 2}])),
            lambda: lake.run(lambda txn: (txn.append("u", [{"id": 9}]), txn.delete("t", "id = 1"))),
            lambda: lake.drop_table("t"),
            lambda: lake.rename_table("t", "v"),
            lambda: lake.unregister("t"),
            lambda: lake.guard("t"),
            lambda: lake.table("t").optimize(),
            lambda: lake.table("t").vacuum(dry_run=False),
            lambda: lake.tag("v1"),
            lambda: lake.branch("etl"),
            lake.gc,
        )
        for work in refused:
            with pytest.raises(lv.UnsupportedFormat, match="table t needs 'teleport'"):
                work()
        lake.run(lambda txn: txn.append("u", [{"id": 2}]))
        assert sorted(lake.read("u")["id"].to_pylist()) == [1, 2]
        assert [table.name for table in lake.tables()] == ["u"]
        (finding,) = lake.doctor().findings
        assert (finding.kind, finding.table) == ("unsupported_format", "t")
    assert json.loads(path.read_text())["tables"]["t"] == body["tables"]["t"]
    after = {one: one.read_bytes() for one in (tmp_path / "t").rglob("*") if one.is_file()}
    assert after == before


@FORMATS
@pytest.mark.parametrize("verb", ["rebuild", "reset"])
def test_a_rebuild_from_a_head_keeps_what_a_table_needs_and_what_is_kept(
    tmp_path: Path, format: str, verb: str
) -> None:
    noted = {"colour": {"red": [1, 2.5]}}
    with lv.connect(tmp_path) as lake:
        for name in ("t", "u"):
            lake.create_table(name, [{"id": 1}], format=format)  # type: ignore[arg-type]
    path = tmp_path / "_lakevilla" / "HEAD.json"
    body = json.loads(path.read_text())
    body["tables"]["t"]["needs"] = ["teleport"]
    body["tables"]["u"]["kept"] = noted
    path.write_text(json.dumps({**body, "format": NEWEST_FORMAT, "kept": noted}))
    with lv.connect(tmp_path) as lake:
        lake.tables()
        held = inside(lake).context.held
        assert held is not None
        if verb == "rebuild":
            lake.recover(rebuild_head=True, force=True)
        else:
            lake.recover(reset_head=held.head.replacement)
        refused: tuple[Callable[[], object], ...] = (
            lambda: lake.read("t"),
            lambda: lake.run(lambda txn: txn.append("t", [{"id": 2}])),
        )
        for work in refused:
            with pytest.raises(lv.UnsupportedFormat, match="table t needs 'teleport'"):
                work()
        lake.run(lambda txn: txn.append("u", [{"id": 2}]))
    after = json.loads(path.read_text())
    assert after["tables"]["t"]["needs"] == ["teleport"]
    assert (after["tables"]["u"]["kept"], after["kept"]) == (noted, noted)
    assert after["format"] == NEWEST_FORMAT

"""A lake that was set back: its HEAD, a branch's HEAD, or its whole directory."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.ids import Ids
from lakevilla_testing.damage.scene import small_objects
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.stores import Dying, Later
from tests.support.tables import values

HEAD = "_lakevilla/HEAD.json"
SOON = lv.Settings(max_age_seconds=0.01, outcome_retention_seconds=0.01)


@pytest.fixture(params=["local", "iceberg"])
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture
def one_place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


def head_of(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(place.root, HEAD).read_bytes())
    return found


def state_of(place: Place) -> dict[str, bytes]:
    root = Path(place.root)
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "/probe/" not in str(path) and not path.name.endswith("lock")
    }


def older_head(place: Place) -> bytes:
    """Set HEAD back to before a branch and a commit; return the newest HEAD."""
    with place.connect() as lake:
        lake.create_table("a", [{"id": 1}])
        lake.create_table("sales/b", [{"id": 1}])
        lake.register("revenue", "sales/b")
        old = Path(place.root, HEAD).read_bytes()
        lake.branch("etl", metadata={"who": "me"})
        lake.on("etl").run(lambda txn: txn.append("a", [{"id": 100}]))
        lake.run(lambda txn: txn.delete("a", "id = 1"))
        lake.run(lambda txn: txn.append("a", [{"id": 2}]))
    newest = Path(place.root, HEAD).read_bytes()
    Path(place.root, HEAD).write_bytes(old)
    return newest


DELETING = {
    "gc": lambda lake: lake.gc(),
    "a dry gc": lambda lake: lake.gc(dry_run=True),
    "vacuum": lambda lake: lake.table("a").vacuum(
        0, dry_run=False, enforce_retention_duration=False
    ),
    "recover": lambda lake: lake.recover(),
    "confirm_head": lambda lake: lake.recover(confirm_head=True),
    "keep": lambda lake: lake.keep("closing"),
    "delete_ref": lambda lake: lake.delete_ref("closing"),
    "drop": lambda lake: lake.drop_table("sales/b", delete_data=True),
    "tag": lambda lake: lake.tag("new"),
    "branch": lambda lake: lake.branch("new"),
    "create_table": lambda lake: lake.create_table("new", [{"id": 1}]),
}


@pytest.mark.parametrize("verb", DELETING)
def test_deleting_or_forking_a_lake_with_an_older_head_raises_and_changes_nothing(
    one_place: Place, verb: str
) -> None:
    with one_place.connect() as lake:
        lake.create_table("z", [{"id": 1}])
        lake.tag("closing")
    newest = older_head(one_place)
    before = state_of(one_place)
    with one_place.connect(settings=SOON) as lake, pytest.raises(lv.CorruptObject) as caught:
        DELETING[verb](lake)
    assert caught.value.key == HEAD
    assert "--reset-head" in str(caught.value)
    assert state_of(one_place) == before
    Path(one_place.root, HEAD).write_bytes(newest)
    with one_place.connect() as lake:
        assert values(lake.on("etl").read("a")) == [1, 100]
        assert values(lake.read("a")) == [2]


@pytest.mark.night
def test_gc_is_refused_until_the_next_commit_if_head_may_have_been_set_back_by_one_replacement(
    one_place: Place,
) -> None:
    with one_place.connect() as lake:
        lake.create_table("a", [{"id": 1}])
        old = Path(one_place.root, HEAD).read_bytes()
        lake.tag("closing")
    Path(one_place.root, HEAD).write_bytes(old)
    with one_place.connect(settings=SOON) as lake:
        with pytest.raises(lv.ConflictError, match="--confirm-head"):
            lake.gc()
        for report in (lake.doctor(), lake.verify()):
            assert not report.ok
            assert "head_in_doubt" in {one.kind for one in report.findings}
        lake.run(lambda txn: txn.append("a", [{"id": 2}]))
        assert lake.gc().ok
        assert lake.doctor().ok


def test_maintain_changes_nothing_and_reports_a_head_that_was_set_back(place: Place) -> None:
    newest = older_head(place)
    before = {key for key in state_of(place) if "/maintenance/" not in key}
    with place.connect(settings=SOON) as lake:
        report = lake.maintain()
        assert not report.ok
        assert [one.key for one in report.findings if one.severity == "error"] == [HEAD]
        for report in (lake.doctor(), lake.verify()):
            assert any(one.key == HEAD and one.severity == "error" for one in report.findings)
    assert {key for key in state_of(place) if "/maintenance/" not in key} == before
    Path(place.root, HEAD).write_bytes(newest)
    with place.connect() as lake:
        assert values(lake.on("etl").read("a")) == [1, 100]


def test_reset_head_restores_the_newest_state_from_an_older_head(place: Place) -> None:
    older_head(place)
    number = head_of(place)["replacement"]
    lake_id = head_of(place)["lake_id"]
    said = CliRunner().invoke(app, ["recover", place.root, "--reset-head", str(number), "--json"])
    assert said.exit_code == 1, said.output  # the findings need attention
    kinds = {one["kind"] for one in json.loads(said.stdout)["findings"]}
    assert {"head_rebuilt", "ref_found"} <= kinds
    assert not kinds & {"unpublished", "maybe_decided", "corrupt_object"}
    assert head_of(place)["replacement"] > number + 1000
    assert head_of(place)["former"] == [lake_id]
    with place.connect() as lake:
        assert values(lake.read("a")) == [2]  # the rows of the tables' logs
        assert values(lake.read("revenue")) == [1]
        assert values(lake.on("etl").read("a")) == [1, 100]
        with pytest.raises(lv.InvalidOperation, match="--confirm-head"):
            lake.gc()
        assert lake.recover(confirm_head=True).ok
        lake.run(lambda txn: txn.append("a", [{"id": 3}]))
        lake.on("etl").run(lambda txn: txn.append("a", [{"id": 101}]))
        assert lake.gc().ok
        assert lake.doctor().ok
        assert values(lake.read("a")) == [2, 3]
        assert values(lake.on("etl").read("a")) == [1, 100, 101]


def test_recover_can_reset_head_to_a_recent_head_that_gc_has_kept(one_place: Place) -> None:
    with one_place.connect() as lake:
        lake.create_table("a", [{"id": 1}])
        lake.tag("closing", metadata={"year": "2026"})
        lake.protect("closing")
        lake.gc()
        kept = head_of(one_place)["replacement"]
        lake.run(lambda txn: txn.append("a", [{"id": 2}]))
    Path(one_place.root, HEAD).write_bytes(b"damaged")
    with one_place.connect() as lake:
        with pytest.raises(lv.VersionNotFound, match=rf"{kept}|global version"):
            lake.recover(reset_head=7_000)
        numbers = [int(p.stem) for p in Path(one_place.root, "_lakevilla/recent").iterdir()]
        assert max(numbers) in (kept, kept - 1)
        report = lake.recover(reset_head=max(numbers))
        assert not [one for one in report.findings if one.severity == "error"]
        (ref,) = lake.refs()
        assert (ref.name, ref.protected, dict(ref.metadata)) == ("closing", True, {"year": "2026"})
        assert values(lake.read("a")) == [1, 2]


def test_an_existing_wrong_head_is_rebuilt_only_with_force(one_place: Place) -> None:
    older_head(one_place)
    with one_place.connect() as lake:
        with pytest.raises(lv.InvalidOperation, match="--force"):
            lake.recover(rebuild_head=True)
        lake.recover(rebuild_head=True, force=True)
        lake.recover(confirm_head=True)
        assert values(lake.read("a")) == [2]
        assert values(lake.on("etl").read("a")) == [1, 100]
        assert lake.gc().ok
    for wrong in (
        {"force": True},
        {"reset_head": -1},
        {"reset_head": 3, "rebuild_head": True},
        {"reset_head": 3, "confirm_head": True},
    ):
        with one_place.connect() as lake, pytest.raises(lv.InvalidOperation):
            lake.recover(**wrong)  # type: ignore[arg-type]


def test_a_branch_whose_head_was_set_back_is_reported(one_place: Place) -> None:
    with one_place.connect() as lake:
        lake.create_table("a", [{"id": 1}])
        lake.branch("b")
        for number in (2, 3, 4):
            lake.on("b").run(lambda txn, n=number: txn.append("a", [{"id": n}]))
            (head,) = Path(one_place.root).glob("_lakevilla/branches/*/HEAD.json")
            Path(one_place.root, f"after-{number}").write_bytes(head.read_bytes())
        assert lake.doctor().ok
    for number, kind in ((3, "ref_in_doubt"), (2, "corrupt_object")):
        head.write_bytes(Path(one_place.root, f"after-{number}").read_bytes())
        with one_place.connect() as lake:
            for report in (lake.doctor(), lake.verify()):
                assert kind in {one.kind for one in report.findings}
                assert not report.ok
    head.write_bytes(Path(one_place.root, "after-4").read_bytes())
    with one_place.connect() as lake:
        lake.gc()  # gc records the newest version of the branch
    head.write_bytes(Path(one_place.root, "after-3").read_bytes())
    with one_place.connect() as lake, pytest.raises(lv.CorruptObject, match="was set back"):
        lake.on("b")


def test_a_branch_whose_head_was_set_back_to_before_a_merge_is_reported(one_place: Place) -> None:
    with one_place.connect() as lake:
        lake.create_table("a", [{"id": 1}])
        lake.branch("etl")
        (head,) = Path(one_place.root, "_lakevilla/branches").glob("*/HEAD.json")
        lake.on("etl").run(lambda txn: txn.append("a", [{"id": 2}]))
        old = head.read_bytes()
        lake.on("etl").run(lambda txn: txn.append("a", [{"id": 3}]))
        lake.merge("etl")
    head.write_bytes(old)
    with one_place.connect() as lake, pytest.raises(lv.CorruptObject, match="was set back"):
        lake.on("etl")


def test_a_branch_whose_head_was_set_back_is_reported_though_it_is_protected(
    one_place: Place,
) -> None:
    with one_place.connect() as lake:
        lake.create_table("a", [{"id": 1}])
        lake.branch("etl")
        (head,) = Path(one_place.root, "_lakevilla/branches").glob("*/HEAD.json")
        old = head.read_bytes()
        lake.on("etl").run(lambda txn: txn.append("a", [{"id": 2}]))
        lake.gc()  # gc records the newest version of the branch
    newest = head.read_bytes()
    head.write_bytes(old)
    with one_place.connect() as lake:
        with pytest.raises(lv.CorruptObject, match="was set back"):
            lake.protect("etl")
        assert head.read_bytes() == old
        with pytest.raises(lv.InvalidOperation, match="is protected"):
            lake.delete_ref("etl")
    head.write_bytes(newest)
    with one_place.connect() as lake:
        lake.protect("etl")
        assert values(lake.on("etl").read("a"), "id") == [1, 2]


def test_a_lake_whose_own_directory_is_lost_is_not_taken_for_a_new_lake(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("deep/er/a", [{"id": 1}])
        lake.run(lambda txn: txn.append("deep/er/a", [{"id": 2}]), idempotency_key="day 1")
    shutil.rmtree(Path(place.root, "_lakevilla"))
    for call in (
        lambda lake: lake.exists(),
        lambda lake: lake.create_table("z", [{"id": 1}]),
        lambda lake: lake.run(lambda txn: txn.create_table("z", [{"id": 1}])),
        lambda lake: lake.tag("closing"),
        lambda lake: lake.gc(),
    ):
        with place.connect() as lake, pytest.raises(lv.CorruptObject) as caught:
            call(lake)
        assert caught.value.key == HEAD
    assert not Path(place.root, HEAD).exists()
    with place.connect() as lake:
        assert [one.kind for one in lake.doctor().findings] == ["corrupt_object"]
        lake.recover(rebuild_head=True)
        assert values(lake.read("deep/er/a")) == [1, 2]
        lake.run(lambda txn: txn.append("deep/er/a", [{"id": 3}]))
        # The lake can't know any more whether the key has committed.
        with pytest.raises(lv.CommitOutcomeUnknown, match="--confirm-head"):
            lake.run(lambda txn: txn.append("deep/er/a", [{"id": 9}]), idempotency_key="day 1")
        lake.recover(confirm_head=True)
        lake.run(lambda txn: txn.append("deep/er/a", [{"id": 4}]), idempotency_key="day 2")
        assert values(lake.read("deep/er/a")) == [1, 2, 3, 4]
        assert lake.doctor().ok


def test_foreign_tables_below_a_root_are_not_taken_for_a_lost_lake(one_place: Place) -> None:
    with lv.connect(f"{one_place.root}/inner") as other:
        other.create_table("a", [{"id": 1}])
    with one_place.connect() as lake:
        assert not lake.exists()
        lake.create_table("z", [{"id": 1}])
        assert values(lake.read("z")) == [1]


@pytest.mark.parametrize("force", [False, True], ids=["reset_head", "rebuild_head"])
def test_a_rebuild_that_dies_leaves_no_sign_of_a_newer_head(one_place: Place, force: bool) -> None:
    left: set[str] = set()
    with small_objects():
        with one_place.connect() as lake:
            for number in range(3):
                lake.create_table(f"t{number}", [{"id": number}])
        for writes in range(20):
            before, number = state_of(one_place).keys(), head_of(one_place)["replacement"]
            options = {"rebuild_head": True, "force": True} if force else {"reset_head": number}
            with one_place.connect() as dying:
                inside(dying).store = Dying(inside(dying).store, writes)
                with suppress(Dying.Death):
                    dying.recover(**options)
            if head_of(one_place)["replacement"] != number:
                break
            left |= state_of(one_place).keys() - before
            with one_place.connect() as lake:
                lake.run(lambda txn: txn.append("t0", [{"id": 9}]))
                assert lake.recover().ok
                lake.tag(f"tag{writes}")
    assert any("/leaves/" in key for key in left)


def test_a_reset_head_fences_all_that_the_head_before_it_has_fenced(one_place: Place) -> None:
    """The client that resets HEAD has a clock that is a day behind."""
    with one_place.connect(settings=SOON) as lake:
        lake.create_table("a", [{"id": 1}])
        later = Later()
        later.ahead_seconds = 10
        later.of(lake)
        lake.gc()
    before = head_of(one_place)
    assert before["floor"] > before["commits"][-1]["txn"]
    with one_place.connect() as lake:
        slow = Later()
        slow.ahead_seconds = -24 * 3600
        inside(lake).context.ids = Ids(slow)
        lake.recover(reset_head=before["replacement"])
    assert head_of(one_place)["floor"] >= before["floor"]

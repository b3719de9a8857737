"""A lake that was changed by hand: errors name key and table, and nothing is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from tests.contract.foreign_writers.test_hidden_versions import add_five, decided_and_left
from tests.support.foreign_changes import TABLE, lake_state
from tests.support.places import Place, make_place
from tests.support.stores import interrupted, is_entry, is_head, unpublished
from tests.support.tables import accounts, in_order, values

HEAD = "_lakevilla/HEAD.json"


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    """Return a lake with two tables and a few commits."""
    place = make_place("local", request)
    for table in (TABLE, "other"):
        place.write(table, accounts(2))
    with place.connect() as lake:
        lake.register({TABLE: TABLE, "other": "other"})
        for number in range(3):
            lake.run(lambda txn, n=number: txn.append(TABLE, [{"id": 10 + n, "balance": 0}]))
    return place


def head_file(place: Place) -> Path:
    return Path(place.root) / HEAD


def findings(place: Place) -> list[dict[str, Any]]:
    """Return the findings that ``lakevilla doctor`` prints in a new process."""
    told = CliRunner().invoke(app, ["doctor", place.root, "--json"])
    assert told.exit_code == 1, told.output
    found: list[dict[str, Any]] = json.loads(told.stdout)["findings"]
    return found


def refused(place: Place, error: type[lv.LakeVillaError], *says: str) -> None:
    """Assert that every verb raises ``error`` with the cause, and that none writes an object."""
    before = lake_state(place)
    calls: tuple[Callable[[lv.Lake], object], ...] = (
        lambda lake: lake.snapshot().read(TABLE),
        lambda lake: lake.run(lambda txn: txn.append(TABLE, [{"id": 1, "balance": 1}])),
        lambda lake: lake.run(lambda txn: txn.update(TABLE, {"balance": "0"}, where="true")),
        lambda lake: lake.tables(),
        lambda lake: lake.register("other"),
        lambda lake: lake.recover(),
        lambda lake: lake.gc(),
    )
    for call in calls:
        with place.connect() as lake, pytest.raises(error) as caught:
            call(lake)
        for what in says:
            assert what in str(caught.value), caught.value
    told = findings(place)
    assert any(f["kind"] == error.kind for f in told), told
    assert any(all(what in f["message"] for what in says) for f in told), told
    assert lake_state(place) == before


@pytest.mark.parametrize("length", [0, 1, 40, -1], ids=["empty", "1", "40", "all-but-1"])
def test_a_truncated_head_is_refused_and_the_restored_one_accepted(
    place: Place, length: int
) -> None:
    body = head_file(place).read_bytes()
    head_file(place).write_bytes(body[:length])
    refused(place, lv.CorruptObject, HEAD, "restore the newest copy")
    head_file(place).write_bytes(body)
    with place.connect() as lake:
        assert values(lake.snapshot().read(TABLE)) == [0, 1, 10, 11, 12]


def test_a_head_of_a_newer_release_is_refused(place: Place) -> None:
    body = json.loads(head_file(place).read_bytes())
    head_file(place).write_text(json.dumps({**body, "format": 99}))
    refused(place, lv.UnsupportedFormat, HEAD, "99", "upgrade")


def test_a_missing_commit_object_is_reported_and_blocks_only_its_table(place: Place) -> None:
    decided_and_left(place, lambda txn: txn.append(TABLE, [{"id": 20, "balance": 0}]))
    pending = json.loads(head_file(place).read_bytes())["tables"][TABLE]["pending"][0]
    key = f"_lakevilla/commits/{pending['txn']}-{pending['hash']}.json"
    path = Path(place.root) / key
    body = path.read_bytes()
    path.unlink()
    with place.connect() as lake, pytest.raises(lv.CorruptObject) as caught:
        lake.snapshot().read(TABLE)
    assert caught.value.key == key
    assert key in str(caught.value)
    assert "restore it" in str(caught.value)
    told = [f for f in findings(place) if f["kind"] == "corrupt_object"]
    assert [f["table"] for f in told] == [TABLE]
    with place.connect() as lake:
        lake.run(lambda txn: txn.append("other", [{"id": 30, "balance": 0}]))
    assert values(place.delta("other").to_pyarrow_table()) == [0, 1, 30]
    assert values(place.delta(TABLE).to_pyarrow_table()) == [0, 1, 10, 11, 12]
    path.write_bytes(body)
    with place.connect() as lake:
        assert lake.recover().ok
    assert values(place.delta(TABLE).to_pyarrow_table()) == [0, 1, 10, 11, 12, 20]


def test_a_missing_page_is_reported_by_its_key(place: Place, page_length: int) -> None:
    with place.connect() as lake:
        for number in range(2 * page_length + 2 - len(lake.history())):
            lake.register({f"another name {number}": f"{place.root}/{TABLE}"})
    (page,) = (Path(place.root) / "_lakevilla" / "pages").iterdir()
    key = page.relative_to(place.root).as_posix()
    page.unlink()
    told = [f for f in findings(place) if f["kind"] == "corrupt_object"]
    assert told
    assert key in told[0]["message"]
    # Reads and writes that need no old history still work.
    with place.connect() as lake:
        lake.run(lambda txn: txn.append(TABLE, [{"id": 20, "balance": 0}]))
        assert values(lake.snapshot().read(TABLE)) == [0, 1, 10, 11, 12, 20]
        report = lake.gc()
    assert not report.ok
    assert any(key in finding.message for finding in report.findings)


# -------------------------------------------------------------- HEAD set back


def set_back(place: Place, *, grown: int) -> tuple[lv.Lake, bytes]:
    """Replace HEAD by an older one; return a client that has seen the newest HEAD, and that HEAD.

    ``grown``: the number of commits of a third client on the older HEAD, to a table that the
    first client did not write, so that the third client can't notice.
    """
    older = head_file(place).read_bytes()
    client = place.connect()
    for number in range(3):
        client.run(lambda txn, n=number: txn.append(TABLE, [{"id": 50 + n, "balance": 0}]))
    newest = head_file(place).read_bytes()
    head_file(place).write_bytes(older)
    with place.connect() as third:
        for number in range(grown):
            third.run(lambda txn, n=number: txn.append("other", [{"id": 70 + n, "balance": 0}]))
    return client, newest


@pytest.mark.parametrize("grown", [0, 1, 3, 5])
def test_a_client_that_saw_a_newer_head_refuses_an_older_head_and_its_successors(
    place: Place, grown: int
) -> None:
    client, newest = set_back(place, grown=grown)
    before = lake_state(place)
    calls: tuple[Callable[[], object], ...] = (
        lambda: client.snapshot().read("other"),
        lambda: client.run(lambda txn: txn.append("other", [{"id": 1, "balance": 1}])),
        lambda: client.run(lambda txn: txn.delete(TABLE, "true")),
        lambda: client.register("other"),
        lambda: client.recover(),
        lambda: client.gc(),
    )
    for call in calls:
        with pytest.raises(lv.CorruptObject) as caught:
            call()
        assert caught.value.key == HEAD
        assert "set back" in str(caught.value)
    assert [f.kind for f in client.doctor().findings] == ["corrupt_object"]
    assert lake_state(place) == before
    if not grown:
        head_file(place).write_bytes(newest)
        client.run(lambda txn: txn.append(TABLE, [{"id": 60, "balance": 0}]))
        assert values(client.snapshot().read(TABLE)) == [0, 1, 10, 11, 12, 50, 51, 52, 60]
    client.close()


def test_a_head_set_back_between_validation_and_decision_is_not_replaced(place: Place) -> None:
    older = head_file(place).read_bytes()
    with place.connect() as lake:
        lake.run(lambda txn: txn.append(TABLE, [{"id": 50, "balance": 0}]))
        txn = lake.transaction()
        txn.append("other", [{"id": 60, "balance": 0}])
        with (
            interrupted(lake, is_head, lambda: head_file(place).write_bytes(older)),
            pytest.raises(lv.CorruptObject, match="set back"),
        ):
            txn.commit()
    assert head_file(place).read_bytes() == older
    assert values(place.delta("other").to_pyarrow_table()) == [0, 1]


def test_doctor_finds_by_the_tables_logs_that_head_was_set_back(place: Place) -> None:
    client, _ = set_back(place, grown=0)
    client.close()
    told = findings(place)
    assert [(f["kind"], f["table"]) for f in told if f["severity"] == "error"] == [
        ("corrupt_object", None),  # found by a commit object that HEAD does not have
        ("corrupt_object", TABLE),
    ]
    assert HEAD in told[0]["message"]


def test_a_missing_head_is_not_created_again_by_a_commit(place: Place) -> None:
    with place.connect() as client:
        client.snapshot().read(TABLE)
        head_file(place).unlink()
        before = lake_state(place)
        with pytest.raises(lv.CorruptObject, match="missing"):
            client.run(lambda txn: txn.append(TABLE, [{"id": 1, "balance": 1}]))
        assert lake_state(place) == before
    # A client that never saw HEAD does not create it either.
    with place.connect() as fresh, pytest.raises(lv.CorruptObject, match="--rebuild-head"):
        fresh.run(lambda txn: txn.append(TABLE, [{"id": 1, "balance": 1}]))


# ------------------------------------------------------- tables, twice or elsewhere


def test_a_client_of_a_deleted_lake_does_not_write_its_tables_in_a_new_lake_at_the_root(
    local_place: Place,
) -> None:
    root = Path(local_place.root)
    with local_place.connect() as old:
        for name in ("bank", "news"):
            old.create_table(name, accounts(1))
        for _ in range(3):
            old.run(lambda txn: txn.append("news", accounts(1)))
        shutil.rmtree(root)
        with local_place.connect() as new:
            new.create_table("bank", accounts(2))
            # By the old table's tip, the client would write a log entry above missing ones.
            with pytest.raises(lv.TableNotFound, match="table news does not exist"):
                old.run(lambda txn: txn.append("news", accounts(1)))
            assert not (root / "news").exists()
            old.create_table("news", accounts(4))
            assert new.read("news").num_rows == 4


def test_a_table_registered_under_two_names_is_one_table(place: Place) -> None:
    with place.connect() as lake:
        before = lake.snapshot().version
        lake.register("other")
        assert lake.snapshot().version == before, "nothing to do, nothing written"
        lake.register({"alias": f"{place.root}/other", "second": f"{place.root}/other/"})
        with lake.transaction() as txn:
            txn.append("alias", [{"id": 20, "balance": 0}])
            txn.append("other", [{"id": 21, "balance": 0}])
            assert values(txn.read("second")) == [0, 1, 20, 21]
        assert txn.result is not None
        assert len(txn.result.versions or {}) == 1, "one table, one commit"
        with pytest.raises(lv.InvalidOperation) as caught:
            lake.register("alias", f"{place.root}/{TABLE}")
        assert "alias" in str(caught.value)
        assert "unregister" in str(caught.value)
    assert values(place.delta("other").to_pyarrow_table()) == [0, 1, 20, 21]


def test_a_table_moved_to_another_root_is_reported_lost_and_refused_by_another_lake(
    place: Place, tmp_path: Path
) -> None:
    elsewhere = Place(str(tmp_path / "elsewhere"))
    Path(elsewhere.root).mkdir()
    shutil.move(place.uri(TABLE), elsewhere.uri(TABLE))
    told = findings(place)
    assert [(f["kind"], f["table"]) for f in told] == [("table_lost", TABLE)]
    assert "unregister" in told[0]["message"]
    before = lake_state(elsewhere)
    with place.connect() as lake:
        for call in (
            lambda: lake.snapshot().read(TABLE),
            lambda: lake.run(lambda txn: txn.append(TABLE, [{"id": 1, "balance": 1}])),
        ):
            with pytest.raises(lv.TableNotFound, match="unregister"):
                call()
    assert not (Path(place.root) / TABLE / "_delta_log").exists()
    with elsewhere.connect() as other:
        with pytest.raises(lv.InvalidOperation, match=place.root):
            other.register(TABLE)
        with pytest.raises(lv.InvalidOperation, match=place.root):
            other.run(lambda txn: txn.append(TABLE, [{"id": 1, "balance": 1}]))
    table_part = {
        key: body for key, body in lake_state(elsewhere).items() if "_lakevilla/" not in key
    }
    assert table_part == {key: body for key, body in before.items() if "_lakevilla/" not in key}
    # The table's own lake can register it at its new place.
    with place.connect() as lake:
        lake.unregister(TABLE)
        lake.register("moved", elsewhere.uri(TABLE))
        lake.run(lambda txn: txn.append("moved", [{"id": 20, "balance": 0}]))
        assert values(lake.snapshot().read("moved")) == [0, 1, 10, 11, 12, 20]
        assert all(finding.severity != "error" for finding in lake.doctor().findings)


@pytest.mark.parametrize("lost", ["gone", "older"])
def test_a_decided_commit_to_a_table_that_was_lost_is_given_up_only_when_it_is_unregistered(
    place: Place, tmp_path: Path, lost: str
) -> None:
    older = shutil.copytree(place.uri(TABLE), tmp_path / "older")
    with place.connect() as lake:
        lake.run(lambda txn: txn.append(TABLE, [{"id": 30, "balance": 0}]))
    decided_and_left(place, add_five)
    with place.connect() as lake:
        rows = lake.read(TABLE)
    shutil.move(place.uri(TABLE), tmp_path / "newest")
    if lost == "older":
        shutil.copytree(older, place.uri(TABLE))
    before = [path for path in Path(place.root).rglob("*") if path.parts[-2] == "_delta_log"]
    for _ in range(2):
        with place.connect() as lake:
            report = lake.recover()
            lake.maintain()
            lake.gc()
            assert [(one.severity, one.table) for one in report.findings] == [("error", TABLE)]
            with pytest.raises(lv.TableNotFound, match="restore"):
                lake.run(lambda txn: txn.append(TABLE, [{"id": 31, "balance": 0}]))
    assert [
        path for path in Path(place.root).rglob("*") if path.parts[-2] == "_delta_log"
    ] == before
    assert values(place.delta("other").to_pyarrow_table()) == [0, 1, 8]
    shutil.rmtree(place.uri(TABLE), ignore_errors=True)
    shutil.copytree(tmp_path / "newest", place.uri(TABLE))
    with place.connect() as lake:
        assert lake.recover().ok
        assert in_order(lake.read(TABLE)) == in_order(rows)
    assert in_order(place.delta(TABLE).to_pyarrow_table()) == in_order(rows)


def test_unregister_gives_up_a_decided_commit_to_a_table_that_was_moved_away(
    place: Place, tmp_path: Path
) -> None:
    decided_and_left(place, add_five)
    shutil.move(place.uri(TABLE), tmp_path / "moved")
    with place.connect() as lake:
        lake.unregister(TABLE)
    assert ("voided", TABLE) in [(f["kind"], f["table"]) for f in findings(place)]
    assert values(place.delta("other").to_pyarrow_table()) == [0, 1, 8]


@pytest.mark.parametrize("lost", ["gone", "older"])
def test_unregister_ends_a_table_whose_log_and_decided_commit_are_both_lost(
    place: Place, tmp_path: Path, lost: str
) -> None:
    older = shutil.copytree(place.uri(TABLE), tmp_path / "older")
    with place.connect() as lake:
        lake.run(lambda txn: txn.append(TABLE, [{"id": 30, "balance": 0}]))
    before = set((Path(place.root) / "_lakevilla/commits").iterdir())
    decided_and_left(place, add_five)
    for made in set((Path(place.root) / "_lakevilla/commits").iterdir()) - before:
        made.unlink()
    with place.connect() as lake, pytest.raises(lv.CorruptObject, match="recover"):
        lake.unregister(TABLE)  # the log is there, so `recover` gives the commit up
    shutil.rmtree(place.uri(TABLE))
    if lost == "older":
        shutil.copytree(older, place.uri(TABLE))
    with place.connect() as lake:
        assert not lake.recover().ok
        lake.unregister(TABLE)
        assert lake.recover().ok
    assert ("voided", TABLE) in [(f["kind"], f["table"]) for f in findings(place)]
    assert values(place.delta("other").to_pyarrow_table()) == [0, 1, 8]


def test_a_table_of_an_outer_lake_is_refused_by_a_lake_inside_it(
    request: pytest.FixtureRequest,
) -> None:
    outer = make_place("local", request)
    inner = Place(f"{outer.root}/sub")
    inner.write("t", [{"id": 1, "balance": 1}])
    with outer.connect() as lake:
        lake.run(lambda txn: txn.append("sub/t", [{"id": 2, "balance": 2}]))
    before = lake_state(outer)
    with inner.connect() as lake:
        for call in (
            lambda: lake.register("t"),
            lambda: lake.run(lambda txn: txn.append("t", [{"id": 3, "balance": 3}])),
            lambda: lake.snapshot().read("t"),
        ):
            with pytest.raises(lv.InvalidOperation) as caught:
                call()
            assert f"belongs to the lake at {outer.root}" in str(caught.value)
            assert "unregister" in str(caught.value)
    after = {key: body for key, body in lake_state(outer).items() if key != f"sub/{HEAD}"}
    assert after == before
    assert [row["id"] for row in inner.seen("t")] == [1, 2]


@pytest.mark.parametrize("verb", ["register", "append"])
def test_only_one_of_two_lakes_that_claim_a_table_at_once_gets_it(
    tmp_path: Path, verb: str
) -> None:
    for attempt in range(5):
        elsewhere = Place(str(tmp_path / f"shared{attempt}"))
        elsewhere.write("t", [{"id": 0, "balance": 0}])
        places = [Place(str(tmp_path / f"lake{attempt}-{side}")) for side in "ab"]
        uri = elsewhere.uri("t")

        def take(place: Place, uri: str = uri) -> str | None:
            with place.connect() as lake:
                try:
                    if verb == "register":
                        lake.register("t", uri)
                    else:
                        lake.run(lambda txn: txn.append(uri, [{"id": 1, "balance": 1}]))
                except lv.InvalidOperation as error:
                    return str(error)
            return None

        with ThreadPoolExecutor(2) as pool:
            told = list(pool.map(take, places))
        assert told.count(None) == 1, told
        winner = places[told.index(None)]
        lost = next(message for message in told if message is not None)
        assert f"belongs to the lake at {winner.root}" in lost
        assert len(elsewhere.seen("t")) == (1 if verb == "register" else 2)
        loser = places[1 - told.index(None)]
        with loser.connect() as lake:
            assert lake.tables() == []


def test_adopting_a_moved_lake_fails_until_pending_commits_are_published(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"))
    place.write("bank", accounts(1))
    with place.connect() as lake:
        lake.register("bank")
        with unpublished(lake), lake.transaction() as txn:
            txn.append("bank", [{"id": 9, "balance": 9}])
    moved = Place(str(tmp_path / "moved"))
    shutil.move(place.root, moved.root)
    settings = lv.Settings(publish_timeout_seconds=1e-6)
    with moved.connect(settings=settings) as lake:
        # After one lost race, publish_timeout_seconds are over.
        with (
            interrupted(lake, is_entry("bank"), lambda: moved.write("bank", accounts(1))),
            pytest.raises(lv.StoreError),
        ):
            lake.doctor(adopt=True)
        lake.doctor(adopt=True)
        assert sorted(lake.snapshot().read("bank")["id"].to_pylist()) == [0, 0, 9]


def test_a_head_that_was_set_back_is_refused(local_place: Place) -> None:
    local_place.write("bank", accounts(1))
    head = Path(local_place.root) / "_lakevilla" / "HEAD.json"
    with local_place.connect() as lake:
        lake.register("bank")
        copy = head.read_bytes()
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 5, "balance": 5}])
    head.write_bytes(copy)
    with local_place.connect() as lake:
        with pytest.raises(lv.CorruptObject, match=r"HEAD\.json"):
            lake.snapshot().read("bank")
        # The commit's sequence would count as published, and its rows would be lost.
        with pytest.raises(lv.CorruptObject), lake.transaction() as txn:
            txn.append("bank", [{"id": 6, "balance": 6}])

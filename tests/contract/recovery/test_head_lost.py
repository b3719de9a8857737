"""HEAD.json is lost (hazard 39): never taken for a new lake, and rebuilt from what is left."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.global_log import head, leaves
from lakevilla.lake import context
from lakevilla.lake.publishing.publish import publish_once
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.tables import values

HEAD = "_lakevilla/HEAD.json"
#: The errors of a commit whose transaction began on a HEAD that was lost.
NEVER = (lv.ConflictError, lv.TransactionAborted, lv.CommitOutcomeUnknown)


@pytest.fixture(params=["local", "iceberg"])
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


def filled(place: Place) -> None:
    """Create a lake with two tables and a few commits."""
    with place.connect() as lake:
        lake.create_table("a", [{"id": 1}])
        lake.create_table("sales/b", [{"id": 1}])
        for number in (2, 3):
            with lake.transaction() as txn:
                txn.append("a", [{"id": number}])
                txn.append("sales/b", [{"id": number}])


def lose(place: Place) -> bytes:
    path = Path(place.root, HEAD)
    body = path.read_bytes()
    path.unlink()
    return body


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


def test_a_lake_with_a_lost_head_is_not_taken_for_new_and_not_written(place: Place) -> None:
    filled(place)
    lose(place)
    before = state_of(place)
    calls = (
        lambda lake: lake.snapshot().read("a"),
        lambda lake: lake.tables(),
        lambda lake: lake.create_table("c", [{"id": 1}]),
        lambda lake: lake.run(lambda txn: txn.append("a", [{"id": 9}])),
        lambda lake: lake.register("a"),
        lambda lake: lake.recover(),
        lambda lake: lake.gc(),
        lambda lake: lake.exists(),
        lambda lake: lake.history(),
    )
    for call in calls:
        with place.connect() as lake, pytest.raises(lv.CorruptObject) as caught:
            call(lake)
        assert caught.value.key == HEAD
        assert "--rebuild-head" in str(caught.value)
    report = place.connect().doctor()
    assert not report.ok
    assert [(f.kind, f.key) for f in report.findings] == [("corrupt_object", HEAD)]
    assert state_of(place) == before


@pytest.mark.parametrize("how", ["lost", "cut"])
def test_a_rebuilt_head_has_every_table_and_row(place: Place, how: str) -> None:
    filled(place)
    old = head_of(place)
    path = Path(place.root, HEAD)
    if how == "lost":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:40])
    told = CliRunner().invoke(app, ["recover", place.root, "--rebuild-head", "--json"])
    assert told.exit_code == 1, told.output  # the findings need attention
    findings = json.loads(told.stdout)["findings"]
    assert {f["kind"] for f in findings} == {"head_rebuilt", "lake_file"}
    new = head_of(place)
    assert new["sequence"] >= old["sequence"] + 1000
    assert new["replacement"] >= old["replacement"] + 1000
    assert new["floor"] > max(commit["txn"] for commit in old["commits"])
    assert new["former"] == [old["lake_id"]]
    with place.connect() as lake:
        assert sorted(t.name for t in lake.tables()) == ["a", "sales/b"]
        assert values(lake.snapshot().read("sales/b")) == [1, 2, 3]
        with lake.transaction() as txn:
            txn.append("a", [{"id": 4}])
            txn.update("sales/b", {"id": "id + 10"}, where="id = 3")
        assert lake.doctor().findings[0].kind == "head_rebuilt"
        with pytest.raises(lv.VersionNotFound):
            lake.snapshot(version=1)
    assert [row["id"] for row in place.seen("a")] == [1, 2, 3, 4]
    assert values(place.connect().snapshot().read("sales/b")) == [1, 2, 13]


def test_gc_and_vacuum_are_refused_until_a_rebuilt_head_is_confirmed(place: Place) -> None:
    filled(place)
    lose(place)
    with place.connect() as lake:
        lake.recover(rebuild_head=True)
    with place.connect() as lake:
        for call in (
            lambda: lake.gc(),
            lambda: lake.table("a").vacuum(0, dry_run=False, enforce_retention_duration=False),
        ):
            with pytest.raises(lv.InvalidOperation, match="--confirm-head"):
                call()
        lake.gc(dry_run=True)
        assert lake.recover(confirm_head=True).ok
        assert lake.gc().ok
        assert lake.doctor().ok
    told = CliRunner().invoke(app, ["recover", place.root, "--confirm-head"])
    assert told.exit_code == 0


def test_recover_reports_a_rebuilt_head_until_a_user_has_confirmed_it(
    place: Place,
) -> None:
    filled(place)
    lose(place)
    with place.connect() as lake:
        lake.recover(rebuild_head=True)
    told = CliRunner().invoke(app, ["recover", place.root, "--json"])
    (finding,) = json.loads(told.stdout)["findings"]
    assert (finding["severity"], finding["kind"]) == ("warning", "head_rebuilt")
    assert "--confirm-head" in finding["message"]
    assert told.exit_code == 1
    assert CliRunner().invoke(app, ["recover", place.root, "--confirm-head"]).exit_code == 0
    assert CliRunner().invoke(app, ["recover", place.root]).exit_code == 0


def test_the_history_of_a_lake_begins_with_its_rebuild(place: Place) -> None:
    filled(place)
    lose(place)
    with place.connect() as lake:
        lake.recover(rebuild_head=True)
        (rebuilt,) = lake.history()
        assert (rebuilt.kind, rebuilt.tables) == ("rebuilt", ("a", "sales/b"))
        begin = rebuilt.version
        assert lake.snapshot().version == begin
        shown = CliRunner().invoke(app, ["log", place.root]).stdout
        assert f"{begin}" in shown
        assert "rebuilt" in shown
        lake.run(lambda txn: txn.append("a", [{"id": 4}]))
        lake.create_table("new", [{"id": 1}])
        assert [entry.kind for entry in lake.history()] == [*["transaction"] * 2, "rebuilt"]
        for then in (lake.snapshot(version=begin), lake.snapshot(timestamp=rebuilt.timestamp)):
            assert then.timestamp == rebuilt.timestamp
            assert sorted(then.versions) == ["a", "sales/b"]
            assert values(then.read("a")) == [1, 2, 3]
        now = lake.snapshot()
        assert values(now.changes("a", since=begin)) == [4]
        before = rebuilt.timestamp - timedelta(seconds=1)
        for gone in (
            lambda: lake.snapshot(version=begin - 1),
            lambda: lake.snapshot(version=3),
            lambda: lake.snapshot(timestamp=before),
            lambda: now.changes("a", since=begin - 1),
        ):
            with pytest.raises(lv.VersionNotFound, match=f"version {begin}"):
                gone()
        assert lake.recover(confirm_head=True).ok
    with place.connect(settings=lv.Settings(outcome_retention_seconds=0)) as lake:
        lake.gc()  # removes published commits from HEAD
        assert lake.gc().ok
        assert lake.history() == []
        assert values(lake.snapshot().read("a")) == [1, 2, 3, 4]


def test_a_table_is_shown_by_the_same_name_after_the_rebuild(place: Place, tmp_path: Path) -> None:
    elsewhere = Place(str(tmp_path / "elsewhere"), format=place.format)
    elsewhere.write("t", [{"id": 1}])
    elsewhere.write("u", [{"id": 1}])
    filled(place)
    with place.connect() as lake:
        lake.register({"zebra": elsewhere.uri("t")})
        lake.register({"alpha": elsewhere.uri("t"), "first": place.uri("a")})
        lake.register({"mine": elsewhere.uri("u")})
        lake.register("yours", elsewhere.uri("u"))
        lake.unregister("mine")
        # Before its first write, no object in the lake's own directory names the table's location.
        lake.run(lambda txn: txn.append("zebra", [{"id": 2}]))
        lake.run(lambda txn: txn.append("yours", [{"id": 2}]))
        before = [table.name for table in lake.tables()]
    lose(place)
    with place.connect() as lake:
        lake.recover(rebuild_head=True)
        assert [table.name for table in lake.tables()] == before
        assert values(lake.snapshot().read("alpha")) == [1, 2]
        assert values(lake.snapshot().read("a")) == [1, 2, 3]


def test_rebuild_head_is_refused_for_a_sound_head_and_where_no_lake_was(place: Place) -> None:
    with place.connect() as lake, pytest.raises(lv.InvalidOperation, match="nothing of a lake"):
        lake.recover(rebuild_head=True)
    filled(place)
    before = head_of(place)
    with place.connect() as lake, pytest.raises(lv.InvalidOperation, match="nothing to rebuild"):
        lake.recover(rebuild_head=True)
    assert head_of(place) == before


def test_open_transactions_fail_after_a_rebuild_and_new_ones_of_the_same_client_commit(
    place: Place,
) -> None:
    filled(place)
    with place.connect() as client:
        early = client.transaction()
        early.append("a", [{"id": 50}])
        late = client.transaction()
        late.append("a", [{"id": 60}])
        by_entry = client.transaction(lv.Feature.R)
        by_entry.append("a", [{"id": 65}])
        lose(place)
        with pytest.raises((lv.CorruptObject, lv.CommitOutcomeUnknown), match="--rebuild-head"):
            early.commit()
        with place.connect() as other:
            other.recover(rebuild_head=True)
        with pytest.raises(NEVER):
            late.commit()
        assert client.outcome(late.id).state == "expired"
        by_entry.commit()  # a commit by log entry alone depends on no HEAD
        # New transactions of the same client use the new HEAD, without a new connection.
        client.run(lambda txn: txn.append("a", [{"id": 70}]))
        both = client.transaction()
        both.update("a", {"id": "id + 1"}, where="id = 70")
        both.append("sales/b", [{"id": 71}])
        both.commit()
    assert values(place.connect().snapshot().read("a")) == [1, 2, 3, 65, 71]


def test_an_empty_head_created_late_by_a_stalled_client_loses_no_table(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "_NEW_SECONDS", 3600.0)
    with place.connect() as stalled:
        assert not stalled.exists()  # the client has found no lake, and takes it for new
        filled(place)
        lose(place)
        with pytest.raises(lv.CorruptObject, match="--rebuild-head"):
            stalled.run(lambda txn: txn.append("a", [{"id": 90}]))
        assert "sequence" not in head_of(place), "its empty HEAD has landed"
        open_still = stalled.transaction()
        open_still.create_table("second", [{"id": 1}])
        with place.connect() as other:
            other.recover(rebuild_head=True)
            assert values(other.snapshot().read("a")) == [1, 2, 3]
        with pytest.raises(NEVER):
            open_still.commit()
        stalled.run(lambda txn: txn.append("a", [{"id": 4}]))
    assert values(place.connect().snapshot().read("a")) == [1, 2, 3, 4]


def test_two_concurrent_rebuilds_make_one_head(place: Place) -> None:
    filled(place)
    lose(place)
    both = threading.Barrier(2)
    made: list[object] = []

    def rebuild() -> None:
        with place.connect() as lake:
            inside(lake).client.ensure_safe_store()
            both.wait()
            try:
                made.append(lake.recover(rebuild_head=True))
            except lv.StoreError as error:
                made.append(error)

    threads = [threading.Thread(target=rebuild) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert any(isinstance(one, lv.Report) for one in made)
    with place.connect() as lake:
        lake.run(lambda txn: txn.append("a", [{"id": 4}]))
        report = lake.recover(rebuild_head=True)  # another rebuild changes nothing
        assert [f.kind for f in report.findings] == ["head_rebuilt"]
        assert values(lake.snapshot().read("a")) == [1, 2, 3, 4]


def unpublished(place: Place, monkeypatch: pytest.MonkeyPatch) -> tuple[lv.Lake, str]:
    """Return a client with a decided and unpublished commit."""
    client = place.connect()
    txn = client.transaction(wait="decided")
    with monkeypatch.context() as patch:
        patch.setattr(type(inside(client).client), "_soon", lambda self, program: None)
        txn.append("a", [{"id": 30}])
        txn.commit()
    return client, txn.id


def test_rebuild_head_reports_a_decided_unpublished_commit_and_does_not_apply_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(place)
    client, txn_id = unpublished(place, monkeypatch)
    client.close()
    lose(place)
    with place.connect() as lake:
        report = lake.recover(rebuild_head=True)
        (told,) = [f for f in report.findings if f.kind == "maybe_decided"]
        assert (told.txn_id, told.table) == (txn_id, "a")
        assert told.key is not None
        assert Path(place.root, told.key).exists()
        assert lake.outcome(txn_id).state == "expired"
        assert values(lake.snapshot().read("a")) == [1, 2, 3]


def test_a_client_that_publishes_after_the_rebuild_loses_no_row(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(place)
    client, _ = unpublished(place, monkeypatch)
    decided = inside(client).held
    assert decided is not None
    lose(place)
    with place.connect() as lake:
        lake.recover(rebuild_head=True)
        lake.run(lambda txn: txn.append("a", [{"id": 4}]))
    # The client wakes between commit point and publishing, with the HEAD that it has stored.
    inside(client).run(publish_once(inside(client).context, decided.head, "a"))
    with place.connect() as lake:
        assert values(lake.snapshot().read("a")) == [1, 2, 3, 4, 30]
        lake.run(lambda txn: txn.append("a", [{"id": 5}]))
        assert [finding.kind for finding in lake.recover().findings] == ["head_rebuilt"]
    assert sorted(row["id"] for row in place.seen("a")) == [1, 2, 3, 4, 5, 30]


def test_an_idempotency_key_from_before_a_rebuild_never_commits_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(place)
    with place.connect() as lake:
        lake.run(lambda txn: txn.append("a", [{"id": 7}]), idempotency_key="done")
        lake.run(lambda txn: txn.append("a", [{"id": 8}]), idempotency_key=("app", 3))
    client = place.connect()
    with monkeypatch.context() as patch:
        patch.setattr(type(inside(client).client), "_soon", lambda self, program: None)
        client.run(
            lambda txn: txn.append("a", [{"id": 30}]), idempotency_key="open", wait="decided"
        )
    lose(place)
    with place.connect() as lake:
        lake.recover(rebuild_head=True)
        for key in ("done", ("app", 3), ("app", 2)):
            with pytest.raises(lv.AlreadyCommitted), lake.transaction(idempotency_key=key) as txn:
                txn.append("a", [{"id": 99}])
        with (
            pytest.raises(lv.CommitOutcomeUnknown, match="delete _lakevilla/keys/"),
            lake.transaction(idempotency_key="open") as txn,
        ):
            txn.append("a", [{"id": 99}])
        lake.run(lambda txn: txn.append("a", [{"id": 9}]), idempotency_key=("app", 4))
        assert values(lake.snapshot().read("a")) == [1, 2, 3, 7, 8, 9]


def test_registered_names_come_back_with_their_tables(place: Place, tmp_path: Path) -> None:
    elsewhere = Place(str(tmp_path / "elsewhere"), format=place.format)
    elsewhere.write("t", [{"id": 1}])
    filled(place)
    with place.connect() as lake:
        lake.register({"orders": elsewhere.uri("t")})
        lake.register({"second": elsewhere.uri("t"), "of_a": place.uri("a")})
        lake.run(lambda txn: txn.append("orders", [{"id": 2}]))
    lose(place)
    with place.connect() as lake:
        lake.recover(rebuild_head=True)
        for name, rows in (("orders", [1, 2]), ("second", [1, 2]), ("of_a", [1, 2, 3])):
            assert values(lake.snapshot().read(name)) == rows


def test_recover_adds_missing_names_to_claims(place: Place) -> None:
    filled(place)
    with place.connect() as lake:
        lake.register({"first": place.uri("a")})
    claim = Path(place.root, "a/_lakevilla/lake.json")
    noted = json.loads(claim.read_bytes())
    assert noted["aliases"] == ["a", "first"]
    # As after a crash between the replacement of HEAD and the update of the claim.
    claim.write_bytes(json.dumps({**noted, "aliases": []}).encode())
    assert place.connect().recover().ok
    assert json.loads(claim.read_bytes())["aliases"] == ["a", "first"]


def test_only_a_lake_without_a_head_costs_a_list_and_a_search_for_tables(
    place: Place,
) -> None:
    with place.connect() as lake, inside(lake).requests.counting() as requests:
        assert not lake.exists()
        assert not lake.exists()
    assert (requests.list, requests.get) == (2, 2)
    filled(place)
    with place.connect() as lake, inside(lake).requests.counting() as requests:
        assert lake.exists()
    assert (requests.list, requests.get) == (0, 1)


def test_a_rebuild_finds_names_and_tables_that_were_stored_in_leaves(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaves, "INLINE_BYTES", 200)
    monkeypatch.setattr(leaves, "LEAF_BYTES", 400)
    filled(place)
    with place.connect() as lake:
        for number in range(8):
            lake.register({f"another_name_of_the_table_a_{number}": place.uri("a")})
        assert inside(lake).held is not None
        assert inside(lake).held.head.names.refs
    old = head_of(place)
    lose(place)
    with place.connect() as lake:
        lake.recover(rebuild_head=True)
        assert values(lake.snapshot().read("another_name_of_the_table_a_5")) == [1, 2, 3]
        lake.run(lambda txn: txn.append("another_name_of_the_table_a_5", [{"id": 4}]))
        assert lake.recover(confirm_head=True).ok
        assert lake.gc().ok
        assert lake.doctor().ok
    assert head_of(place)["replacement"] > old["replacement"] + 1000
    assert values(place.connect().snapshot().read("a")) == [1, 2, 3, 4]


def test_a_rebuild_reports_a_dropped_table_that_comes_back(place: Place) -> None:
    filled(place)
    with place.connect() as lake:
        lake.drop_table("a")
    lose(place)
    with place.connect() as lake:
        report = lake.recover(rebuild_head=True)
        assert "a" in {table.name for table in lake.tables()}
    (told,) = [f for f in report.findings if f.kind == "maybe_dropped"]
    assert (told.severity, told.table) == ("warning", "a")
    assert told.txn_id is not None
    assert told.txn_id in told.message


def test_the_error_for_a_damaged_head_names_the_command_that_rebuilds_it(place: Place) -> None:
    filled(place)
    whole = Path(place.root, HEAD).read_bytes()
    for body in (b"", whole[: len(whole) // 2], b"garbage", b"[]"):
        Path(place.root, HEAD).write_bytes(body)
        (told,) = place.connect().doctor().findings
        assert "lakevilla recover ROOT --rebuild-head" in told.message


def test_a_rebuild_leaves_out_a_table_that_a_page_records_as_dropped(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "PAGE_LENGTH", 4)
    monkeypatch.setattr(head, "COMMITS_IN_HEAD", 8)
    filled(place)
    with place.connect() as lake:
        lake.create_table("gone", [{"id": 1}])
        lake.drop_table("gone")
        for number in range(4, 16):
            lake.run(lambda txn, n=number: txn.append("a", [{"id": n}]))
    old = head_of(place)
    assert old["pages"][-1][2] > 6
    lose(place)
    with place.connect() as lake:
        report = lake.recover(rebuild_head=True)
        assert [f.table for f in report.findings if f.kind == "dropped"] == ["gone"]
        assert [f for f in report.findings if f.severity == "error"] == []
        assert sorted(t.name for t in lake.tables()) == ["a", "sales/b"]
        assert head_of(place)["sequence"] >= old["sequence"] + 1000
        lake.register("gone")
        assert values(lake.snapshot().read("gone")) == [1]


def test_a_rebuild_reports_damaged_objects_and_goes_on(place: Place) -> None:
    filled(place)
    commit = sorted(Path(place.root, "_lakevilla/commits").iterdir())[0]
    commit.write_bytes(b"{")
    lose(place)
    with place.connect() as lake:
        report = lake.recover(rebuild_head=True)
        assert f"_lakevilla/commits/{commit.name}" in [f.key for f in report.findings]
        assert values(lake.snapshot().read("a")) == [1, 2, 3]

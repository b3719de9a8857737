"""Versions that several transactions share: who they are, wherever a version is shown."""

from __future__ import annotations

import json
import threading
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.cli.output import Output
from tests.support.combined import SECONDS, adds, combine, held, in_group, until, waiting
from tests.support.places import Place

ROWS = pa.table({"id": [1, 2], "n": [0, 0]})


def shared(lake: lv.Lake) -> list[lv.Transaction]:
    """Make a table and commit one transaction alone and three as one version, the third one."""
    lake.create_table("a", ROWS)
    found = combine(lake, adds(1), adds(10), adds(100, "id = 2"), adds(1000))
    assert [txn.state for txn in found] == ["committed"] * 4
    return found


def test_history_and_feed_show_who_shares_a_version(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        first, *members = shared(lake)
        ids = tuple(txn.id for txn in members)
        history = lake.history()
        assert [entry.version for entry in history] == [3, 2, 1]
        assert [entry.members for entry in history] == [ids, (), ()]
        assert history[1].txn_id == first.id
        assert history[0].txn_id not in {None, first.id, *ids}
        assert ids[0] in history._repr_html_()  # type: ignore[attr-defined]
        changes = list(lake.changes(1))
        assert [(one.version, one.members) for one in changes] == [(2, ()), (3, ids)]
        assert changes[1].txn_id == history[0].txn_id
        assert ids[1] in changes[1]._repr_html_()
        net = list(lake.changes(1, net=True))
        assert [one.members for one in net] == [()]
    with quick_place.connect() as other:
        if quick_place.seen_by_others:
            assert other.history(1)[0].members == ids


def test_the_catalog_shows_who_shares_a_version(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        ids = [txn.id for txn in shared(lake)[1:]]
        rows = lake.sql("SELECT version, members FROM lakevilla_commits ORDER BY version")
        assert rows.column("members").to_pylist() == [[], [], ids]
        who = lake.sql(
            "SELECT version FROM lakevilla_commits WHERE list_contains(members, :id)",
            {"id": ids[2]},
        )
        assert who.to_pylist() == [{"version": 3}]
        assert lake.query("/a/commits[version = 3]").column("members").to_pylist() == [ids]
        assert lake.query("/a/snapshots").column("members").to_pylist() == [[], [], ids]
        with lake.session() as session:
            shown = session.sql("SHOW VERSIONS")
        assert [row["members"] for row in shown.to_pylist()] == [ids, [], []]


def test_a_tables_log_names_the_members_beside_the_id_that_they_share(shared_place: Place) -> None:
    with shared_place.connect() as lake:
        ids = tuple(txn.id for txn in shared(lake)[1:])
        whole = lake.history(1)[0].txn_id
    with shared_place.connect() as other:
        entries = other.table("a").history()
        assert [entry.members for entry in entries] == [ids, (), ()]
        assert entries[0].txn_ids == (whole,)
        with other.session() as session:
            told = session.sql("DESCRIBE HISTORY a").to_pylist()
        assert [row["members"] for row in told] == [list(ids), [], []]
    log = CliRunner().invoke(app, ["log", shared_place.root, "--table", "a"]).output
    assert log.count(f"performed together: {', '.join(ids)}") == 1
    if shared_place.format == "delta":
        entry = shared_place.delta("a").history(1)[0]
        assert (entry["txnId"], entry["lakevilla"]["members"]) == (whole, list(ids))
    else:
        table = shared_place.catalog().load_table("a")
        assert table.current_snapshot().summary["lakevilla.members"] == ",".join(ids)


# ------------------------------------------------------------------- outcomes


def test_a_member_knows_its_own_tables_and_operations(quick_place: Place) -> None:
    def both(txn: lv.Transaction) -> None:
        txn.update("a", {"n": "n + 1"}, where="id = 1")
        txn.update("b", {"n": "n + 1"}, where="id = 1")

    with quick_place.connect() as lake:
        for table in ("a", "b"):
            lake.create_table(table, ROWS)
        _, one, two = combine(lake, adds(1), adds(1, table="b"), both)
        version = lake.history(1)[0]
        assert version.members == (one.id, two.id)
        assert one.result is not None
        assert two.result is not None
        assert (one.result.id, one.result.operations) == (one.id, 1)
        assert (two.result.id, two.result.operations) == (two.id, 2)
        # The same entry of the log of b is that of both.
        assert one.result.versions == {"b": 1}
        assert two.result.versions == {"a": 2, "b": 1}
        assert one.result.global_version == two.result.global_version == version.version
    with quick_place.connect() as other:
        if quick_place.seen_by_others:
            outcomes(other, version, one, two)


def outcomes(
    lake: lv.Lake, version: lv.HistoryEntry, one: lv.Transaction, two: lv.Transaction
) -> None:
    """Check what a client that knows nothing yet tells of the members."""
    assert version.txn_id is not None
    expected = {one.id: ({"b"}, 1), two.id: ({"a", "b"}, 2), version.txn_id: ({"a", "b"}, 3)}
    for txn_id, (tables, operations) in expected.items():
        found = lake.outcome(txn_id)
        assert found.state == "committed"
        assert found.result is not None
        assert (found.result.id, found.result.operations) == (txn_id, operations)
        assert set(found.result.versions or ()) == tables
        assert found.result.global_version == version.version
        with pytest.raises(
            lv.InvalidOperation, match=f"committed as global version {version.version}"
        ):
            lake.abort(txn_id)
    assert lake.transactions() == []


def test_the_command_line_tells_how_a_member_ended(local_place: Place) -> None:
    with local_place.connect() as lake:
        member = shared(lake)[2]
    told = CliRunner().invoke(app, ["outcome", local_place.root, member.id])
    assert told.output == f"transaction {member.id}: committed as global version 3: a\n"
    assert told.exit_code == 0
    refused = CliRunner().invoke(app, ["abort", local_place.root, member.id])
    assert "committed as global version 3" in refused.output
    assert refused.exit_code != 0


# ------------------------------------------------------------------- taken back


def numbers(lake: lv.Lake) -> dict[int, int]:
    return {row["id"]: row["n"] for row in lake.read("a").to_pylist()}


def test_a_shared_version_is_reverted_and_done_again_only_as_a_whole(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        ids = [txn.id for txn in shared(lake)[1:]]
        before, after = {1: 1, 2: 0}, {1: 1011, 2: 100}
        for verb, now in ((lake.revert, before), (lake.cherry_pick, after)):
            with pytest.raises(lv.InvalidOperation, match="members='all'") as raised:
                verb(3)
            assert all(one in raised.value.message for one in ids)
            assert "version 3" in raised.value.message
            with pytest.raises(lv.InvalidOperation, match="members must be None or 'all'"):
                verb(3, members="some")  # type: ignore[arg-type]
            assert numbers(lake) != now
            verb(3, members="all")
            assert numbers(lake) == now
        assert [entry.members for entry in lake.history(2)] == [(), ()]
        # Verbs that name states, not a commit, need no word.
        lake.rollback(2)
        assert numbers(lake) == before
        lake.rollback(3)
        assert numbers(lake) == after
        with lake.transaction() as txn:
            txn.apply(3, 2)
        assert numbers(lake) == before


def test_a_version_of_one_transaction_is_reverted_as_ever(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        shared(lake)
        lake.revert(2, keys={"a": "id"}, on_conflict="ours")
        lake.table("a").restore(0)
        assert numbers(lake) == {1: 0, 2: 0}


def test_a_combined_commit_with_one_member_left_is_reverted_as_ever(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        lake.create_table("a", ROWS)

        too_much = adds(2**63 - 1)  # n is 1 by then
        _, poison, member = combine(lake, adds(1), too_much, adds(10))
        assert (poison.state, member.state) == ("aborted", "committed")
        assert lake.history(1)[0].members == (member.id,)
        lake.revert(3)
        assert numbers(lake) == {1: 1, 2: 0}


def test_a_shared_version_of_a_branch_is_picked_as_a_whole_and_merged_without_a_word(
    quick_place: Place,
) -> None:
    with quick_place.connect() as lake:
        lake.create_table("a", ROWS)
        lake.branch("etl")
        with lake.on("etl") as etl:
            _, one, two = combine(etl, adds(1), adds(10), adds(100, "id = 2"))
            version = etl.history(1)[0]
            assert version.members == (one.id, two.id)
            assert etl.outcome(two.id).result == two.result
        assert lake.outcome(one.id).state == "committed"
        with pytest.raises(lv.InvalidOperation, match="members='all'") as raised:
            lake.cherry_pick(f"etl@{version.version}")
        assert one.id in raised.value.message
        lake.cherry_pick(f"etl@{version.version - 1}")
        assert numbers(lake) == {1: 1, 2: 0}
        lake.cherry_pick(f"etl@{version.version}", members="all")
        assert numbers(lake) == {1: 11, 2: 100}
        lake.rollback(1)
        lake.merge("etl")
        assert numbers(lake) == {1: 11, 2: 100}
        assert lake.history(1)[0].members == ()


def test_the_command_line_reverts_a_shared_version_as_a_whole(local_place: Place) -> None:
    with local_place.connect() as lake:
        shared(lake)
        refused = CliRunner().invoke(app, ["revert", local_place.root, "3"])
        assert refused.exit_code != 0
        assert "--members all" in refused.output
        assert numbers(lake) == {1: 1011, 2: 100}
        done = CliRunner().invoke(app, ["revert", local_place.root, "3", "--members", "all"])
        assert done.exit_code == 0, done.output
        assert numbers(lake) == {1: 1, 2: 0}
        CliRunner().invoke(app, ["cherry-pick", local_place.root, "3", "--members", "all"])
        assert numbers(lake) == {1: 1011, 2: 100}


# ------------------------------------------------------------------- alone


def test_a_transaction_alone_gets_a_version_of_its_own(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        lake.create_table("a", ROWS)
        with held(lake, adds(1)) as group:
            group.start(adds(10))
            group.start(adds(100))
            alone = threading.Thread(
                target=lambda: lake.run(adds(1000, "id = 2"), defer=True, alone=True)
            )
            alone.start()
            group.start(adds(10_000))
            until(lambda: waiting(lake) == 2)  # the first of the others, and the one alone
        alone.join(SECONDS)
        ids = [txn.id for txn in group.begun]
        shared_by = [entry.members for entry in lake.history() if entry.members]
        assert shared_by == [tuple(ids[1:])]
        assert [entry.version for entry in lake.history()] == [4, 3, 2, 1]
        assert numbers(lake) == {1: 10_111, 2: 1000}


@pytest.mark.parametrize("begin", ["transaction", "run", "transactional", "session"])
def test_every_way_to_begin_takes_alone(local_place: Place, begin: str) -> None:
    with local_place.connect() as lake:
        lake.create_table("a", ROWS)

        def commit(alone: object) -> None:
            options: dict[str, Any] = {"defer": True, "alone": alone}
            if begin == "transaction":
                with lake.transaction(**options) as txn:
                    adds(1)(txn)
            elif begin == "run":
                lake.run(adds(1), **options)
            elif begin == "transactional":
                lake.transactional(**options)(adds(1))()
            else:
                with lake.session(**options) as session:
                    session.sql("UPDATE a SET n = n + 1 WHERE id = 1")

        commit(True)
        assert numbers(lake)[1] == 1
        with pytest.raises(lv.InvalidOperation, match="alone must be True or False"):
            commit("yes")


def test_a_lake_that_does_not_combine_gives_each_transaction_a_version(local_place: Place) -> None:
    settings = lv.Settings(combine=False)
    with local_place.connect(settings=settings) as lake:
        lake.create_table("a", ROWS)
        lake.run(adds(1), defer=True)

        def work() -> None:
            for _ in range(3):
                lake.run(adds(1), defer=True)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert numbers(lake)[1] == 13
        assert [entry.members for entry in lake.history()] == [()] * 14
        assert in_group(lake) == 0


# ------------------------------------------------------------------- shown


def test_the_shell_lists_the_members_of_a_version(local_place: Place) -> None:
    with local_place.connect() as lake:
        ids = [txn.id for txn in shared(lake)[1:]]
    told = CliRunner().invoke(app, ["shell", local_place.root], "\\format csv\n\\log 1\n")
    assert ", ".join(ids) in told.stdout


@pytest.mark.parametrize("as_json", [True, False])
def test_the_command_line_shows_who_shares_a_version(
    local_place: Place, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with local_place.connect() as lake:
        ids = [txn.id for txn in shared(lake)[1:]]
        (version,) = lake.changes(2)
        Output(as_json).version(version, None)
    feed = capsys.readouterr().out
    flags = ["--json"] if as_json else ["-v"]
    log = CliRunner().invoke(app, ["log", local_place.root, *flags]).output
    if as_json:
        assert [entry["members"] for entry in json.loads(log)] == [ids, [], []]
        assert json.loads(feed)["members"] == ids
    else:
        together = f"performed together: {', '.join(ids)}"
        assert log.count(together) == 1
        assert feed.count(together) == 1

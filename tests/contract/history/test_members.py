"""Versions that several transactions share: who they are, wherever a version is shown."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.cli.output import Output
from tests.support.combined import adds, combine
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
        with lake.session() as session:
            shown = session.sql("SHOW VERSIONS")
        assert [row["members"] for row in shown.to_pylist()] == [ids, [], []]


@pytest.mark.parametrize("as_json", [True, False])
def test_the_command_line_shows_who_shares_a_version(
    local_place: Place, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with local_place.connect() as lake:
        ids = [txn.id for txn in shared(lake)[1:]]
        (version,) = lake.changes(2)
        Output(as_json).version(version, None)
    feed = capsys.readouterr().out
    flags = ["--json"] if as_json else []
    log = CliRunner().invoke(app, ["log", local_place.root, *flags]).output
    if as_json:
        assert [entry["members"] for entry in json.loads(log)] == [ids, [], []]
        assert json.loads(feed)["members"] == ids
    else:
        together = f"performed together: {', '.join(ids)}"
        assert log.count(together) == 1
        assert feed.count(together) == 1

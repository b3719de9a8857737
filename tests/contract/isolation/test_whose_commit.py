"""A conflict names the commit that it meets: its version, time, and writer if he has said so."""

from __future__ import annotations

import getpass
import os
import pickle
import platform
import re
import socket
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from tests.support.inside import inside


def lose(lake: lv.Lake, other: lv.Lake, **options: Any) -> lv.ConflictError:
    """Let a transaction of ``lake`` meet one of ``other`` on a row that both change."""
    txn = lake.transaction()
    txn.update("stock", {"qty": "qty - 1"}, where="sku = 'tea'").rows_updated  # noqa: B018
    txn.read("stock")
    with other.transaction(**options) as theirs:
        theirs.update("stock", {"qty": "qty - 2"}, where="sku = 'tea'")
    with pytest.raises(lv.ConflictError) as raised:
        txn.commit()
    return raised.value


def begin(root: Path) -> lv.Lake:
    lake = lv.connect(root)
    lake.create_table("stock", [{"sku": "tea", "qty": 5}])
    return lake


def test_a_conflict_names_version_time_and_metadata_of_the_other_commit(tmp_path: Path) -> None:
    with begin(tmp_path) as lake, lv.connect(tmp_path) as other:
        error = lose(lake, other, metadata={"job": "load"})
        newest = lake.history(1)[0]
    assert (error.version, error.timestamp) == (newest.version, newest.timestamp)
    assert error.metadata == {"job": "load"}
    assert f"global version {newest.version} of {newest.timestamp.isoformat(' ')[:23]}" in str(
        error
    )
    again = pickle.loads(pickle.dumps(error))
    assert (again.version, again.metadata, str(again)) == (
        error.version,
        error.metadata,
        str(error),
    )


def test_a_conflict_names_the_identity_that_a_writer_has_set(tmp_path: Path) -> None:
    named = lv.Settings(identity="etl@team")
    with begin(tmp_path) as lake, lv.connect(tmp_path, settings=named) as other:
        assert "(identity=etl@team, job=load)" in str(lose(lake, other, metadata={"job": "load"}))
        assert "(identity=mine)" in str(lose(lake, other, metadata={"identity": "mine"}))
        other.create_table("t", {"a": "int"})
        assert other.history(1)[0].metadata == {"identity": "etl@team"}


def test_a_commit_has_nothing_of_its_writer_that_was_not_given(tmp_path: Path) -> None:
    with begin(tmp_path) as lake, lv.connect(tmp_path) as other:
        error = lose(lake, other)
        assert "=" not in str(error).partition("the newest commit")[2]
        assert all(entry.metadata == {} for entry in lake.history())


@pytest.mark.parametrize("identity", ["", "etl@team"])
def test_a_store_gets_nothing_of_a_client_but_its_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity: str
) -> None:
    secrets = ("machine-of-the-caller", "user-of-the-caller", f":{os.getpid()}:")
    monkeypatch.setattr(socket, "gethostname", lambda: secrets[0])
    monkeypatch.setattr(platform, "node", lambda: secrets[0])
    monkeypatch.setattr(getpass, "getuser", lambda: secrets[1])
    with begin(tmp_path), lv.connect(tmp_path, settings=lv.Settings(identity=identity)) as lake:
        lake.tag("kept")
        lake.branch("etl")
        lake.maintain()
        txn = lake.transaction(lv.Feature.R | lv.Feature.CT | lv.Feature.I)
        txn.take_turn("stock")
        txn.save()
        stored = {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()}
        (running,) = lake.transactions()
        txn.abort()
    assert any("/txns/" in str(one) for one in stored)
    assert any("/maintenance/" in str(one) for one in stored)
    for body in stored.values():
        assert not [secret for secret in secrets if secret.encode() in body]
    assert re.fullmatch(r"(etl@team:)?[0-9a-f]{16}", running.owner)
    assert running.owner.startswith(identity)
    assert {ref.created_by for ref in lake.refs()} == {running.owner}


def test_a_conflict_after_which_a_function_runs_again_costs_no_request_for_a_name(
    tmp_path: Path,
) -> None:
    def gets(attempts: int, **options: Any) -> int:
        met = 0

        def meet(txn: lv.Transaction) -> None:
            nonlocal met
            txn.read("stock")
            txn.update("stock", {"qty": "qty - 1"}, where="sku = 'tea'")
            if not met:
                with other.transaction(**options) as theirs:
                    theirs.update("stock", {"qty": "qty - 2"}, where="sku = 'tea'")
            met += 1

        with inside(lake).requests.counting() as requests:
            if attempts > 1:
                lake.run(meet, attempts=attempts, chain=False)
            else:
                with pytest.raises(lv.ConflictError) as raised:
                    lake.run(meet, attempts=attempts, chain=False)
                assert raised.value.metadata == options["metadata"], raised.value
        return int(requests.get)

    with begin(tmp_path) as lake, lv.connect(tmp_path) as other:
        gets(2, metadata={"job": "warm"})
        assert gets(2, metadata={"job": "load"}) == gets(2)
        gets(1, metadata={"job": "load"})


@pytest.mark.parametrize("bad", [None, 3, "\ud800"])
def test_an_identity_that_is_no_text_is_refused(bad: Any) -> None:
    with pytest.raises(lv.InvalidOperation, match="identity must be a text"):
        lv.Settings(identity=bad)

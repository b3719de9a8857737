"""A token has rights to read or write some states of the lake, and no others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.serve.access import Grant, Rights, tokens_in
from tests.contract.foreign_readers import HAS_EXTENSIONS
from tests.contract.serve.gateway import Gateway, serving
from tests.support.tables import accounts


def file_of(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("text", "state", "reads", "writes"),
    [
        ("t read", "main", True, False),
        ("t read", "etl/a", True, False),
        ("t write", "main", True, True),
        ("t write main,etl/*", "main", True, True),
        ("t write main,etl/*", "etl/a", True, True),
        ("t write main,etl/*", "etl", False, False),
        ("t write main,etl/*", "main2", False, False),
        ("# all\nt read  # everything\n\nt write etl*", "main", True, False),
        ("t read\nt write etl*", "etl-2", True, True),
        ("u write\nt read tag", "main", False, False),
    ],
)
def test_a_line_of_the_file_gives_a_right(
    tmp_path: Path, text: str, state: str, reads: bool, writes: bool
) -> None:
    rights = tokens_in(file_of(tmp_path, text))["t"]
    found = rights.may(state, writes=False), rights.may(state, writes=True)
    assert found == (reads, writes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no token"),
        ("# nothing", "has no token"),
        ("secret", "line 1: write `TOKEN read`"),
        ("t read\nsecret admin", "line 2: write `TOKEN read`"),
        ("secret read main etl", "line 1: write `TOKEN read`"),
        ("secret read main,,etl", "'' is no state"),
        ("secret write e*l", "'e\\*l' is no state"),
        ("sécret read", "letters, digits"),
        ("sec,ret read", "letters, digits"),
    ],
)
def test_a_wrong_line_is_refused_and_its_token_not_repeated(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match=said) as refused:
        tokens_in(file_of(tmp_path, text))
    assert "secret" not in str(refused.value)


def test_a_token_file_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(lv.InvalidOperation, match="No such file"):
        tokens_in(tmp_path / "nix")
    for mode in (0o644, 0o640, 0o602, 0o620):
        with pytest.raises(lv.InvalidOperation, match="chmod 600"):
            tokens_in(file_of(tmp_path, "t read", mode))
    assert tokens_in(file_of(tmp_path, "t read", 0o400))
    path = file_of(tmp_path, "t read")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    if path.stat().st_uid:
        with pytest.raises(lv.InvalidOperation, match="chown"):
            tokens_in(path)
    else:  # of root: so Kubernetes hands a secret to the group of a process
        assert tokens_in(file_of(tmp_path, "t read", 0o440))
        with pytest.raises(lv.InvalidOperation, match="chmod 600"):
            tokens_in(file_of(tmp_path, "t read", 0o444))


TOKENS = {
    "reads": Rights((Grant(writes=False),)),
    "writes": Rights((Grant(writes=True),)),
    "main": Rights((Grant(writes=True, states=("main",)),)),
    "etl": Rights((Grant(writes=True, states=("etl*",)),)),
}


@pytest.fixture
def served(lake: lv.Lake) -> Iterator[Gateway]:
    lake.branch("etl")
    lake.branch("secret/a")
    with serving(lake, tokens=TOKENS) as gateway:
        yield gateway


def status(gateway: Gateway, token: str, path: str, **options: Any) -> int:
    return Gateway(gateway.uri, token).ask(path, **options).status_code


#: Tables of the lake, of one of its versions, and of branches.
STATES = {
    "main": "/namespaces/root/tables",
    "version": "/v1/namespaces/root/tables",
    "etl": "/etl/namespaces/root/tables",
    "hex of etl": f"/r-{b'etl'.hex()}/namespaces/root/tables",
    "etl at a version": "/etl%401/namespaces/root/tables",
    "secret": f"/r-{b'secret/a'.hex()}/namespaces/root/tables",
}


@pytest.mark.cases(None)
@pytest.mark.parametrize(
    ("token", "states"),
    [
        ("reads", set(STATES)),
        ("writes", set(STATES)),
        ("main", {"main", "version"}),
        ("etl", {"etl", "hex of etl", "etl at a version"}),
        ("nobody", set()),
    ],
)
def test_a_token_reads_its_states_alone(served: Gateway, token: str, states: set[str]) -> None:
    refused = {401} if token == "nobody" else {403}
    for name, path in STATES.items():
        # a branch's first version may be unknown: that is no right, either
        expected = {200, 404} if name in states else refused
        assert status(served, token, path) in expected, name
        assert status(served, token, f"{path}/stock", method="HEAD") in expected | {204}, name


def test_a_token_changes_its_states_alone(lake: lv.Lake, served: Gateway) -> None:
    body = {"updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    path, before = "/namespaces/root/tables/stock", lake.history(1)[0].version
    for token in ("reads", "etl"):
        assert status(served, token, path, method="POST", json=body) == 403
        assert status(served, token, path, method="DELETE") == 403
        both = {"table-changes": []}
        assert status(served, token, "/transactions/commit", method="POST", json=both) == 403
    assert lake.history(1)[0].version == before
    for token in ("main", "writes"):
        assert status(served, token, path, method="POST", json=body) == 200


def test_the_configuration_advertises_what_a_token_may_do(served: Gateway) -> None:
    def endpoints(token: str, warehouse: str) -> list[str]:
        answer = Gateway(served.uri, token).ask(f"/config?warehouse={warehouse}")
        return list(answer.json()["endpoints"]) if answer.ok else []

    commit = "POST /v1/{prefix}/transactions/commit"
    assert commit in endpoints("writes", "lake")
    assert commit not in endpoints("reads", "lake")
    assert endpoints("reads", "lake")
    assert endpoints("etl", "lake@etl")
    assert endpoints("main", "lake@now")
    for token, warehouse in (("etl", "lake"), ("etl", "lake@now"), ("main", "lake@secret/a")):
        assert endpoints(token, warehouse) == []


def test_pyiceberg_needs_nothing_but_its_token(lake: lv.Lake, served: Gateway) -> None:
    catalog = Gateway(served.uri, "writes").pyiceberg()
    table = catalog.load_table("root.stock")
    table.append(table.scan().to_arrow())
    assert lake.read("stock").num_rows == 4


@pytest.mark.skipif(not HAS_EXTENSIONS, reason="needs DuckDB's extension for Iceberg")
def test_duckdb_needs_nothing_but_its_token(lake: lv.Lake, served: Gateway) -> None:
    connection = Gateway(served.uri, "writes").duckdb()
    connection.execute("INSERT INTO l.root.stock VALUES (8, 80)")
    assert lake.read("stock").num_rows == len(accounts(2)) + 1

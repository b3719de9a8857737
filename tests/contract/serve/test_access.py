"""The gateway answers whom it was told to answer, and reads no body without end."""

from __future__ import annotations

import gzip
import os
import re
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest
import requests

import lakevilla as lv
from lakevilla.errors import InvalidOperation
from lakevilla.serve.access import Rights
from lakevilla.serve.catalog import Catalog
from lakevilla.serve.limits import Limits
from lakevilla.serve.server import server_of
from tests.contract.serve.gateway import Gateway, serving

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "[::2]:80", "[::1]evil", "localhost:80:x", ""]
)
def test_a_request_for_another_host_is_refused(gateway: Gateway, host: str) -> None:
    status, _, message = gateway.refused("/namespaces", headers={"Host": host})
    assert status == 421
    assert "--host-name" in message


def test_clients_call_the_gateway_by_the_names_that_it_was_given(lake: lv.Lake) -> None:
    with serving(lake, host_names=["lake.example"]) as gateway:
        for host in ("lake.example", "LAKE.example:8181", "localhost:1", "[::1]:8181"):
            assert gateway.ask("/namespaces", headers={"Host": host}).status_code == 200


def test_each_request_needs_the_token(lake: lv.Lake) -> None:
    with serving(lake, token="secret") as gateway:
        assert gateway.pyiceberg().list_tables("root") == [("root", "stock")]
        stranger = Gateway(gateway.uri)
        for path in ("/config", "/namespaces", "/namespaces/root/tables/stock"):
            assert stranger.refused(path)[:2] == (401, "NotAuthorizedException")
            wrong = {"Authorization": "Bearer secret2"}
            assert stranger.refused(path, headers=wrong)[0] == 401
            other = {"Authorization": "Basic secret"}
            assert stranger.refused(path, headers=other)[0] == 401
        known = {"Authorization": "bearer secret"}  # schemes have no case
        assert stranger.ask("/namespaces", headers=known).status_code == 200


def test_other_machines_reach_no_gateway_without_a_token(lake: lv.Lake) -> None:
    with pytest.raises(lv.InvalidOperation, match="--token-file"):
        server_of(lake, "0.0.0.0")


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_a_gateway_without_tls_for_other_machines_warns_of_its_tokens(
    lake: lv.Lake, capfd: pytest.CaptureFixture[str], host: str, warned: bool
) -> None:
    server_of(lake, host, tokens={"secret": Rights(())})
    told = capfd.readouterr().err
    assert ("whoever is on the way from a client reads its token" in told) == warned
    assert "secret" not in told


def test_a_body_that_is_too_large_is_not_read_to_its_end(gateway: Gateway) -> None:
    large = b" " * (17 << 20)
    path, options = "/namespaces", {"method": "POST", "headers": JSON}
    assert gateway.refused(path, data=large, **options)[0] == 413
    packed = {"headers": {**JSON, "Content-Encoding": "gzip"}, "method": "POST"}
    assert gateway.refused(path, data=gzip.compress(large), **packed)[0] == 413
    assert gateway.refused(path, data=b"no gzip", **packed)[0] == 400


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "no JSON object"),
        (b"[]", "no JSON object"),
        (b"[" * 100_000, "no JSON object"),
        (b'{"namespace": "a"}', "'namespace'"),
        (b'{"namespace": []}', "needs a name"),
        (b'{"namespace": ["a", ""]}', "needs a name"),
        (b'{"namespace": ["a"], "properties": {"a": 1}}', "'properties'"),
        (b"{}", "'namespace'"),
    ],
)
def test_a_wrong_body_is_refused_by_its_field(gateway: Gateway, body: bytes, said: str) -> None:
    answer = gateway.refused("/namespaces", method="POST", headers=JSON, data=body)
    assert answer[0] == 400
    assert said in answer[2]


def test_a_form_of_a_page_elsewhere_changes_nothing(gateway: Gateway) -> None:
    form = {"Content-Type": "text/plain"}
    body = b'{"namespace": ["a"]}'
    assert gateway.refused("/namespaces", method="POST", headers=form, data=body)[0] == 415
    assert gateway.pyiceberg().list_namespaces() == [("root",), ("sales",)]
    assert "Access-Control-Allow-Origin" not in gateway.ask("/config").headers


def test_the_command_serves_until_a_signal_ends_it(lake: lv.Lake) -> None:
    command = [sys.executable, "-m", "lakevilla.cli", "serve", lake.root, "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found is not None
        assert Gateway(found[0]).pyiceberg().list_tables("root") == [("root", "stock")]
        process.terminate()
        assert process.wait(30) in (0, -15, 143)


def test_a_port_in_use_is_refused_by_what_to_do(lake: lv.Lake, gateway: Gateway) -> None:
    port = int(gateway.uri.rpartition(":")[2])
    with pytest.raises(InvalidOperation, match=f"port {port}: give another --port"):
        server_of(lake, port=port).run()


def test_an_error_of_the_gateway_is_in_its_log(
    lake: lv.Lake, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a fault of the program")

    monkeypatch.setattr(Catalog, "namespaces", broken)
    with serving(lake) as gateway:
        assert gateway.refused("/namespaces")[0] == 500
    told = capfd.readouterr().err
    assert "GET /v1/namespaces" in told
    assert "a fault of the program" in told


def test_a_client_that_goes_within_its_request_is_no_error_of_the_gateway(
    lake: lv.Lake, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(lake) as gateway:
        port = int(gateway.uri.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(
                b"POST /v1/namespaces HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 90\r\n\r\n{"
            )
        assert gateway.ask("/namespaces").status_code == 200
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "query", ["pageToken=x", "pageToken=[1]", "pageToken={}", f"pageSize={'9' * 5000}"]
)
def test_a_page_that_does_not_exist_is_refused(gateway: Gateway, query: str) -> None:
    for path in ("/namespaces", "/namespaces/root/tables"):
        assert gateway.refused(f"{path}?{query}")[0] == 400


def test_a_client_that_asks_for_a_token_is_told_where_to_take_one(gateway: Gateway) -> None:
    status, _, message = gateway.refused("/oauth/tokens", method="POST", data={"a": "b"})
    assert status == 404
    assert "give the client one of its token file" in message


def test_a_probe_needs_no_token_and_learns_nothing(lake: lv.Lake) -> None:
    with serving(lake, token="secret") as gateway:
        probe = requests.get(f"{gateway.uri}/ready", headers={"Host": "10.0.0.7"}, timeout=30)
        assert (probe.status_code, probe.content) == (204, b"")
        assert {"server", "www-authenticate"}.isdisjoint(probe.headers)


def test_a_commit_that_takes_too_long_is_not_known_and_takes_effect(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, done, commit = threading.Event(), threading.Event(), Catalog.commit

    def late(self: Catalog, *arguments: Any) -> Any:
        gate.wait(30)
        try:
            return commit(self, *arguments)
        finally:
            done.set()

    monkeypatch.setattr(Catalog, "commit", late)
    body = {"updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    path = "/namespaces/root/tables/stock"
    with serving(lake, limits=Limits(seconds=0.2)) as gateway:
        status, kind, _ = gateway.refused(path, method="POST", json=body)
        assert (status, kind) == (504, "CommitStateUnknownException")
        gate.set()
        assert done.wait(30)
    with serving(lake) as gateway:
        assert gateway.ask(path).json()["metadata"]["properties"]["a"] == "b"


@pytest.mark.parametrize("what", ["tables", "updates", "requirements"])
def test_a_request_has_so_many_parts_at_most(gateway: Gateway, what: str) -> None:
    table = {"identifier": {"namespace": ["root"], "name": "stock"}}
    one = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}
    parts = {
        "tables": [table] * 257,
        "updates": [{**table, "updates": [{"action": "x"}] * 501}] * 2,
        "requirements": [{**table, "requirements": [one] * 501}] * 2,
    }
    options = {"method": "POST", "json": {"table-changes": parts[what]}}
    status, _, message = gateway.refused("/transactions/commit", **options)
    assert status == 413
    assert what in message


def test_the_gateway_gives_out_no_tokens(lake: lv.Lake) -> None:
    with serving(lake, token="secret") as gateway:
        form = {"grant_type": "client_credentials", "client_secret": "secret"}
        answer = gateway.refused("/oauth/tokens", method="POST", data=form)
        assert answer[0] == 404
        assert "secret" not in answer[2]

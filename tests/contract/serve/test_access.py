"""The gateway answers whom it was told to answer, and reads no body without end."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.serve.server import server_of, token_in
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


def test_a_token_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(lv.InvalidOperation, match="No such file"):
        token_in(path)
    path.write_text("word\n")
    path.chmod(0o644)
    with pytest.raises(lv.InvalidOperation, match="chmod 600"):
        token_in(path)
    path.chmod(0o600)
    assert token_in(path) == "word"
    path.write_text("two words")
    with pytest.raises(lv.InvalidOperation, match="no token"):
        token_in(path)


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


@pytest.mark.parametrize(
    "query", ["pageToken=x", "pageToken=[1]", "pageToken={}", f"pageSize={'9' * 5000}"]
)
def test_a_page_that_does_not_exist_is_refused(gateway: Gateway, query: str) -> None:
    for path in ("/namespaces", "/namespaces/root/tables"):
        assert gateway.refused(f"{path}?{query}")[0] == 400

"""A gateway has the tools that read, for whoever it lets in."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from mcp import Client

from tests.integrations.agents.clients import Agent, Refused, gateway, run

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def asked(uri: str, **headers: str) -> tuple[int, dict[str, str]]:
    """Return the status and the headers of the answer to a request of the older protocol."""
    sent = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    } | headers
    request = urllib.request.Request(f"{uri}/mcp", json.dumps(CALL).encode(), sent)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers)


def test_an_agent_elsewhere_reads_the_lake(root: Path) -> None:
    async def story(uri: str) -> None:
        async with Client(f"{uri}/mcp") as client:
            call = Agent(client)
            assert "execute" not in await call.tools()
            found = await call("query", sql="SELECT count(*) AS n FROM stock")
            assert found["rows"] == [[2]]
            with pytest.raises(Refused):
                await call("query", sql="DELETE FROM stock")
            with pytest.raises(Refused):
                await call("merge")

    with gateway(root) as uri:
        run(lambda: story(uri))
        with urllib.request.urlopen(f"{uri}/v1/config?warehouse=lake", timeout=30) as answer:
            assert answer.status == 200, "the gateway serves engines as before"
        assert asked(uri)[0] == 200
        assert asked(uri, Origin=uri)[0] == 200
        for headers in ({"Origin": "http://elsewhere.example"}, {"Origin": "null"}):
            assert asked(uri, **headers)[0] == 403, "a page elsewhere can't have a browser ask"
        assert asked(uri, Host="elsewhere.example")[0] == 421


def test_only_those_are_answered_who_may_read_all_states(root: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("all read\nsome read main\n")
    tokens.chmod(0o600)
    with gateway(root, "--token-file", str(tokens)) as uri:
        status, headers = asked(uri)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert asked(uri, Authorization="Bearer wrong")[0] == 401
        assert asked(uri, Authorization="Bearer some")[0] == 403
        assert asked(uri, Authorization="Bearer all")[0] == 200

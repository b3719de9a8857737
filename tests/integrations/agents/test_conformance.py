"""The protocol's own suite for servers, from npm, asks the gateway.

Most of its scenarios call tools, prompts and resources of the suite's example server, or need what
is not offered here; ``PASSED`` are those that ask what any server must answer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integrations.agents.clients import gateway

SUITE = "@modelcontextprotocol/conformance@0.1.16"
NODE = "node@22"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakevilla-tests"
PASSED = {
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-error",
    "server-sse-multiple-streams",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
}


@pytest.fixture(scope="module")
def suite() -> list[str]:
    """Return the command of the suite, which npm installs once, with the Node that it needs."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is missing")
    directory = _CACHE / re.sub(r"[^\w.]+", "-", SUITE.strip("@"))
    if not (directory / "done").exists():
        directory.mkdir(parents=True, exist_ok=True)
        options = ["--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(directory)]
        subprocess.run([npm, "install", *options, SUITE, NODE], check=True)
        (directory / "done").touch()
    scripts = directory / "node_modules" / ".bin"
    return [str(scripts / "node"), str(scripts / "conformance")]


def test_the_suite_passes_where_it_asks_what_is_offered(
    root: Path, suite: list[str], tmp_path: Path
) -> None:
    with gateway(root) as uri:
        command = [*suite, "server", "--url", f"{uri}/mcp", "-o", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    found = re.findall(r"^([✓✗]) ([\w-]+): \d+ passed", done.stdout, re.MULTILINE)
    assert {name for mark, name in found if mark == "✓"} == PASSED
    assert len(found) == 30

"""Clients of the protocol's own package, and what they are connected to."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client

#: What the script `lakevilla` runs, with the Python of this environment.
COMMAND = [sys.executable, "-m", "lakevilla.cli"]


class Refused(Exception):
    """A tool has answered with an error."""


class Agent:
    """A client, whose answers are values."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def __call__(self, tool: str, **arguments: object) -> Any:
        answer = await self.client.call_tool(tool, arguments)
        (part,) = answer.content
        if answer.is_error:
            raise Refused(part.text)
        assert answer.structured_content == json.loads(part.text)
        return answer.structured_content

    async def tools(self) -> dict[str, Any]:
        return {one.name: one for one in (await self.client.list_tools()).tools}


@asynccontextmanager
async def agent(root: Path, *options: str) -> AsyncIterator[Agent]:
    """Yield an agent that has started ``lakevilla mcp``."""
    command, *arguments = [*COMMAND, "mcp", str(root), *options]
    started = StdioServerParameters(command=command, args=arguments)
    async with Client(stdio_client(started)) as client:
        yield Agent(client)


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 120))  # type: ignore[arg-type]


@contextmanager
def gateway(root: Path, *options: str) -> Iterator[str]:
    """Yield the URI of ``lakevilla serve --mcp``."""
    command = [*COMMAND, "serve", str(root), "--mcp", "--port", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().split()[-1]
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()

"""The command that gives a lake to an agent."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from lakevilla.cli.command import Options, Profile, Root, command, extra
from lakevilla.cli.connection import open_lake
from lakevilla.cli.output import Output
from lakevilla.errors import InvalidOperation


@command
def mcp(
    root: Root,
    write: Annotated[
        bool, typer.Option("--write", help="Let the agent change tables, on a branch of its own.")
    ] = False,
    check: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SQL",
            help="A SELECT of one boolean that must be true of what the agent merges; repeatable.",
        ),
    ] = None,
    no_rows: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SQL", help="A SELECT that must find no row there; repeatable."),
    ] = None,
    checks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Both in a TOML file: NAME = "SELECT ...", the latter below [no_rows].',
        ),
    ] = None,
    branch: Annotated[
        str | None,
        typer.Option(help="The agent's branch, to go on with it; else one with a new name."),
    ] = None,
    max_rows: Annotated[int, typer.Option(min=1, help="Rows of an answer.")] = 200,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Stop a statement after this time.")
    ] = 30.0,
    memory: Annotated[
        int, typer.Option(metavar="MIB", min=64, help="The memory of queries.")
    ] = 1024,
    option: Options = None,
    profile: Profile = None,
) -> None:
    """Serve the lake to an agent, by the Model Context Protocol over stdin and stdout."""
    server_of = _server()
    from lakevilla.serve.agents.checks import checks_of
    from lakevilla.serve.agents.limits import AgentLimits
    from lakevilla.serve.agents.session import Given
    from lakevilla.serve.agents.workers import Workers

    given = checks_of(check or (), no_rows or (), checks)
    if not write and (given or branch):
        raise InvalidOperation(
            "checks and --branch are for an agent that changes tables: give --write"
        )
    limits = AgentLimits(rows=max_rows, seconds=timeout)
    with open_lake(root, option, profile, memory_limit_bytes=memory << 20) as lake:
        name = f"agent-{lake._client.context.ids.nonce()[:12]}"
        session = Given(lake, limits, given if write else None, name, branch)
        session.tools()  # what can't be served is refused before an agent asks
        Output(False).aside(_banner(lake.root, write, list(given)))
        _end_by_interrupt()
        with closing(Workers(session)) as workers:
            server_of(workers).run("stdio")


def _end_by_interrupt() -> None:
    """Let Ctrl-C end the process: the thread that reads stdin can't be interrupted.

    A client of a lake may die anywhere.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _banner(root: str, writes: bool, checks: list[str]) -> str:
    """Return the line by which a person sees on stderr what the agent may do."""
    may = "read it"
    if writes:
        merges = f"merge by {', '.join(checks)}" if checks else "not merge"
        may = f"read it, change a branch of its own, and {merges}"
    hint = "; this is the protocol's end: an agent starts it" if sys.stdin.isatty() else ""
    return f"serving {root} to an agent over stdin and stdout, which may {may}{hint}"


def _server() -> Callable[..., Any]:
    """Return what makes a server of tools."""
    with extra("mcp", "agents need"):
        from lakevilla.serve.agents.tools import server_of
    return server_of

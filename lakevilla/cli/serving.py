"""The command that serves a lake to engines without LakeVilla."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from lakevilla.cli.command import Options, Profile, Root, command, extra
from lakevilla.cli.connection import open_lake
from lakevilla.cli.output import Output
from lakevilla.errors import InvalidOperation


@command
def serve(
    root: Root,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8181,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the bearer tokens that requests must have: TOKEN read, or TOKEN "
            "write, with the states after it, if not all: main,etl/*"
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="A certificate in PEM, by which it serves https.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key in PEM.")] = None,
    host_name: Annotated[
        list[str] | None,
        typer.Option(help="A name by which clients call this machine; repeatable."),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Write nothing to the lake's store.")
    ] = False,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="Also give agents tools that read, at /mcp.")
    ] = False,
    option: Options = None,
    profile: Profile = None,
) -> None:
    """Serve the lake's tables by Iceberg's REST catalog protocol."""
    server_of, tokens_in = _parts()
    agents = _agents() if mcp else None
    tokens = None if token_file is None else tokens_in(token_file)
    if (tls_cert is None) != (tls_key is None):
        raise InvalidOperation("TLS needs both files: give --tls-cert and --tls-key")
    tls = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
    output = Output(False)
    with open_lake(root, option, profile) as lake:
        server_of(
            lake,
            host,
            port,
            tokens=tokens,
            host_names=host_name or (),
            read_only=read_only,
            tls=tls,
            agents=agents,
            when_started=lambda uri: output.line(f"serving {lake.root} at {uri}"),
        ).run()


@command
def ui(
    root: Root,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
    option: Options = None,
    profile: Profile = None,
) -> None:
    """Show the lake in a browser on this machine; nothing is written to its store."""
    server_of, _ = _parts()
    output = Output(False)

    def show(uri: str) -> None:
        output.line(f"showing {lake.root} at {uri}: Ctrl-C ends it")
        if not no_browser:
            webbrowser.open(uri)

    with open_lake(root, option, profile) as lake:
        server_of(lake, port=port, read_only=True, when_started=show).run()


def _parts() -> tuple[Callable[..., Any], Callable[[Path], Any]]:
    """Return what makes a server and reads a token file; they need the extra ``serve``."""
    with extra("serve", "the gateway needs"):
        from lakevilla.serve.access import tokens_in
        from lakevilla.serve.server import server_of
    return server_of, tokens_in


def _agents() -> Callable[..., Any]:
    """Return what makes the tools of agents; they need the extra ``mcp`` as well."""
    with extra("mcp", "agents need"):
        from lakevilla.serve.agents.mounted import Mounted
    return Mounted

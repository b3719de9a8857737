"""The gateway as a server of HTTP."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from socket import socket

import uvicorn

from lakevilla.api.lake import Lake
from lakevilla.errors import InvalidOperation
from lakevilla.serve.app import LOOPBACK, Access, application
from lakevilla.serve.catalog import Catalog


class Server(uvicorn.Server):
    """The server of a gateway; ``run`` serves until a signal ends it, or its exit is asked for.

    Parameters
    ----------
    config : uvicorn.Config
        The application, and where it listens.
    when_started : callable, optional
        Called with the gateway's URI once it answers.
    """

    def __init__(self, config: uvicorn.Config, when_started: Callable[[str], object]) -> None:
        super().__init__(config)
        self._when_started = when_started

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._when_started(
                f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            )


def server_of(
    lake: Lake,
    host: str = "127.0.0.1",
    port: int = 8181,
    *,
    token: str | None = None,
    host_names: Iterable[str] = (),
    read_only: bool = False,
    when_started: Callable[[str], object] = lambda uri: None,
) -> Server:
    """Return a server that answers for a lake.

    Parameters
    ----------
    lake : Lake
        The lake, on its main line. It stays open.
    host : str
        The address to listen at. Beyond this machine a token is needed.
    port : int
        The port; 0 for any that is free.
    token : str, optional
        The bearer token that each request must have.
    host_names : iterable of str
        Names by which clients call the gateway, besides those of this machine.
    read_only : bool
        Whether nothing is written to the lake's store.
    when_started : callable, optional
        Called with the gateway's URI once it answers.

    Raises
    ------
    InvalidOperation
        It would be open to other machines without a token.
    """
    if host not in LOOPBACK and token is None:
        raise InvalidOperation(
            f"host {host!r} can be reached from other machines: give --token-file, or listen at "
            "127.0.0.1"
        )
    hosts = LOOPBACK | {host} | {name.lower() for name in host_names}
    app = application(Catalog(lake, read_only=read_only), Access(hosts, token))
    config = uvicorn.Config(app, host, port, log_level="warning", server_header=False)
    return Server(config, when_started)


def token_in(path: Path) -> str:
    """Return the token in a file that only its owner can read.

    Raises
    ------
    InvalidOperation
        Others can read the file, or it has no token.
    """
    try:
        mode = path.stat().st_mode
        token = path.read_text().strip()
    except OSError as error:
        raise InvalidOperation(f"token file {path}: {error.strerror}") from None
    if os.name == "posix" and mode & (stat.S_IRGRP | stat.S_IROTH):
        raise InvalidOperation(f"token file {path} can be read by others: run `chmod 600 {path}`")
    if not token or not token.isascii() or any(one.isspace() for one in token):
        raise InvalidOperation(f"token file {path} has no token: write one word of ASCII into it")
    return token

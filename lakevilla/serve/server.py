"""The gateway as a server of HTTP."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from socket import socket
from typing import Any

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from lakevilla.api.lake import Lake
from lakevilla.errors import InvalidOperation
from lakevilla.serve.access import LOOPBACK, Access, Rights, access_of
from lakevilla.serve.app import Agents, application
from lakevilla.serve.catalog import Catalog
from lakevilla.serve.limits import Limits

_log = logging.getLogger("lakevilla.serve")

#: What goes to stderr: the server's warnings, and the gateway's own errors with their stacks, which
#: a library would keep to itself.
_LOGGING: dict[str, Any] = {
    **LOGGING_CONFIG,
    "loggers": {
        **LOGGING_CONFIG["loggers"],
        "lakevilla.serve": {"handlers": ["default"], "level": "WARNING"},
    },
}


class Server(uvicorn.Server):
    """The server of a gateway; ``run`` serves until a signal ends it, or its exit is asked for.

    It raises ``InvalidOperation`` if it can't listen at its address.

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
        try:
            await super().startup(sockets)
        except SystemExit as end:  # by uvicorn, which has logged the error of the system
            if not isinstance(end.__context__, OSError):
                raise
            raise InvalidOperation(
                f"can't listen at {self.config.host}, port {self.config.port}: give another --port "
                "(0: any that is free) or --host"
            ) from None
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            scheme = "https" if self.config.is_ssl else "http"
            name = f"[{host}]" if ":" in host else host
            self._when_started(f"{scheme}://{name}:{port}")


def server_of(
    lake: Lake,
    host: str = "127.0.0.1",
    port: int = 8181,
    *,
    tokens: Mapping[str, Rights] | None = None,
    host_names: Iterable[str] = (),
    read_only: bool = False,
    tls: tuple[Path, Path] | None = None,
    limits: Limits | None = None,
    agents: Callable[[Lake, Access], Agents] | None = None,
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
    tokens : Mapping of str to Rights, optional
        The bearer tokens of which each request must have one.
    host_names : iterable of str
        Names by which clients call the gateway, besides those of this machine.
    read_only : bool
        Whether nothing is written to the lake's store.
    tls : tuple of two Path, optional
        The files of the certificate, with those between it and the root's, and of its key.
    limits : Limits, optional
        How much it does at once, and for how long.
    agents : callable, optional
        Makes the tools of agents, if it shall have them.
    when_started : callable, optional
        Called with the gateway's URI once it answers.

    Raises
    ------
    InvalidOperation
        It would be open to other machines without a token, or the files of TLS can't be used.
    """
    if host not in LOOPBACK and not tokens:
        raise InvalidOperation(
            f"host {host!r} can be reached from other machines: give --token-file, or listen at "
            "127.0.0.1"
        )
    access = access_of(tokens or {}, [host, *host_names])
    tools = None if agents is None else agents(lake, access)
    app = application(Catalog(lake, read_only=read_only), access, limits, tools)
    certificate, key = tls or (None, None)
    config = uvicorn.Config(
        app,
        host,
        port,
        log_config=_LOGGING,
        log_level="warning",
        server_header=False,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise InvalidOperation(f"TLS by {certificate} and {key}: {error.strerror}") from None
    if host not in LOOPBACK and tls is None:
        _log.warning(
            "the gateway serves plain HTTP at %s: whoever is on the way from a client reads its "
            "token; give --tls-cert and --tls-key, or let only a proxy with TLS reach it",
            host,
        )
    return Server(config, when_started)

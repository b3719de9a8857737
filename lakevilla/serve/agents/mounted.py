"""The tools that only read, at a path of the gateway.

Each request stands for itself, so any gateway of a lake answers it. A branch belongs to a session,
and a request has none: agents that write are served over stdin and stdout.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lakevilla.api.lake import Lake
from lakevilla.serve.access import Access
from lakevilla.serve.agents.limits import AgentLimits
from lakevilla.serve.agents.session import Given
from lakevilla.serve.agents.tools import http_app, server_of
from lakevilla.serve.agents.workers import Workers
from lakevilla.serve.refusal import Refusal

#: The path of the tools.
PATH = "/mcp"
#: So many calls run at once, each in a process.
_AT_ONCE = 2


class Mounted:
    """The tools of a lake as a route, and what must run while the gateway does.

    Parameters
    ----------
    lake : Lake
        The lake, on its main line.
    access : Access
        Decides which requests are answered. A tool may show any state of the lake, so a token must
        have the right to read them all.
    """

    def __init__(self, lake: Lake[Any], access: Access) -> None:
        self._access = access
        self._workers = _workers(lake)
        self._app: Starlette = http_app(server_of(self._workers), PATH)

    @property
    def route(self) -> Route:
        """The route of the tools."""
        return Route(PATH, endpoint=self)

    @property
    def lifespan(self) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
        """Return what the gateway enters before its first request, and leaves after its last."""

        @asynccontextmanager
        async def running(_: Starlette) -> AsyncIterator[None]:
            with closing(self._workers):
                async with self._app.router.lifespan_context(self._app):
                    yield

        return running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(Request(scope))
        except Refusal as refusal:
            headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
            answer = JSONResponse({"error": refusal.message}, refusal.status, headers)
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, request: Request) -> None:
        """Refuse a request that may not be answered, or that a page elsewhere has sent."""
        rights = self._access.rights(request)
        origin = request.headers.get("origin")
        hosts = self._access.hosts
        if origin is not None and hosts is not None and urlsplit(origin).hostname not in hosts:
            raise Refusal(403, "ForbiddenException", f"a page of {origin} may not ask here")
        if not rights.may("*", writes=False):
            message = (
                "a tool may show any state of the lake, and this token has the right to some "
                "alone: give the agent a token that may read them all"
            )
            raise Refusal(403, "ForbiddenException", message)


def _workers(lake: Lake[Any]) -> Workers:
    given = Given(lake, AgentLimits())
    given.tools()  # a lake that is none for agents is refused before the gateway serves
    return Workers(given, _AT_ONCE)

"""The routes of the pages: each asks who may look, lets a view answer, and makes HTML of it.

No page has a script, loads anything from elsewhere, or changes anything.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import jinja2
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from lakevilla.api.history import utc_datetime
from lakevilla.api.lake import Lake
from lakevilla.errors import LakeVillaError
from lakevilla.serve.page import text
from lakevilla.serve.page.commits import commit
from lakevilla.serve.page.history import history, ref_list
from lakevilla.serve.page.shown import Body, Params, Shown, shown_state
from lakevilla.serve.page.tables import table, tables
from lakevilla.serve.refusal import Refusal, refusal_of

_LOG = logging.getLogger("lakevilla.serve.page")
_HERE = Path(__file__).parent
_CSP = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STYLE = (_HERE / "page.css").read_text()

View = Callable[[Shown, Params], Body]
#: The views in the order of the menu; those without a name are reached from others.
_VIEWS: tuple[tuple[str, str, View], ...] = (
    ("/", "History", history),
    ("/tables", "Tables", tables),
    ("/table", "", table),
    ("/commit", "", commit),
    ("/refs", "Branches", ref_list),
)
_MENU = tuple((path, name) for path, name, _ in _VIEWS if name)


class Doors(Protocol):
    """The rule of the gateway by which a request is answered at all."""

    def check(self, request: Request) -> None:
        """Raise ``Refusal`` for a request that may not be answered."""


class Pages:
    """The pages of a lake.

    Parameters
    ----------
    lake : Lake
        The lake, on its main line.
    doors : Doors
        Who may look.
    """

    def __init__(self, lake: Lake, doors: Doors) -> None:
        self._lake, self._doors = lake, doors
        self._templates = _environment()

    @property
    def routes(self) -> list[Route]:
        """The routes of all pages, and of their style."""
        found = [Route(path, self._of(path, view), methods=["GET"]) for path, _, view in _VIEWS]
        return [*found, Route("/page.css", self._style, methods=["GET"])]

    def _of(self, path: str, view: View) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a view."""

        async def answer(request: Request) -> Response:
            try:
                self._doors.check(request)
                params = Params(request.query_params)
                return await run_in_threadpool(self._answer, path, view, params)
            except Refusal as refusal:
                return self.error(refusal)
            except LakeVillaError as error:
                return self.error(refusal_of(error, writes=False))
            except Exception:
                _LOG.exception("%s", path)
                message = "an error of the gateway: its log has more"
                return self.error(Refusal(500, "InternalServerError", message))

        return answer

    async def _style(self, request: Request) -> Response:
        """Return the style of all pages, which tells nothing of the lake."""
        headers = {**_HEADERS, "Cache-Control": "max-age=60"}
        return Response(_STYLE, headers=headers, media_type="text/css")

    def error(self, refusal: Refusal) -> Response:
        """Return a page that says what is wrong."""
        values = {"status": refusal.status, "message": refusal.message}
        return self._page(Body("error.html", "Not shown", values, refusal.status), {})

    def _answer(self, path: str, view: View, params: Params) -> Response:
        shown = shown_state(self._lake, params.text("on"))
        return self._page(view(shown, params), {"path": path, "on": shown.on})

    def _page(self, body: Body, about: Mapping[str, Any]) -> Response:
        now = utc_datetime(self._lake._client.context.now_ms())
        values = {"title": body.title, "root": self._lake.root, "menu": _MENU, "now": now}
        template = self._templates.get_template(body.template)
        rendered = template.render({"path": None, "on": None, **values, **about, **body.values})
        return HTMLResponse(rendered.encode("utf-8", "replace"), body.status, dict(_HEADERS))


def _environment() -> jinja2.Environment:
    """Return the templates; each value in them is escaped."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "number": text.number,
        "size": text.size,
        "instant": text.instant,
        "machine_time": text.machine_time,
        "age": text.age,
        "short": text.short,
    }
    found.globals |= {"address": text.address}
    return found

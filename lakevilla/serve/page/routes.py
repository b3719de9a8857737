"""The routes of the pages: each asks who may look, lets a view answer, and makes HTML of it.

No page has a script, loads anything from elsewhere, or changes anything.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from lakevilla.api.history import utc_datetime
from lakevilla.api.lake import Lake
from lakevilla.errors import LakeVillaError
from lakevilla.serve.access import Access
from lakevilla.serve.page import text
from lakevilla.serve.page.activity import activity, upkeep
from lakevilla.serve.page.commits import commit
from lakevilla.serve.page.comparing import compare
from lakevilla.serve.page.history import history, ref_list
from lakevilla.serve.page.query import query
from lakevilla.serve.page.shown import Body, Params, Shown, shown_state
from lakevilla.serve.page.signing_in import Cookies, form_of, path_in
from lakevilla.serve.page.tables import table, tables
from lakevilla.serve.page.text import address, for_pages
from lakevilla.serve.refusal import Refusal, refusal_of
from lakevilla.sql.statements.select import quoted

_LOG = logging.getLogger("lakevilla.serve.page")
_HERE = Path(__file__).parent
_CSP = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STYLE = (_HERE / "page.css").read_text()

View = Callable[[Shown, Params], Body]
Endpoint = Callable[[Request], Awaitable[Response]]
#: The views in the order of the menu; those without a name are reached from others.
_VIEWS: tuple[tuple[str, str, View], ...] = (
    ("/", "History", history),
    ("/tables", "Tables", tables),
    ("/table", "", table),
    ("/commit", "", commit),
    ("/refs", "Branches", ref_list),
    ("/compare", "Compare", compare),
    ("/query", "Query", query),
    ("/activity", "Activity", activity),
    ("/upkeep", "Upkeep", upkeep),
)
_MENU = tuple((path, name) for path, name, _ in _VIEWS if name)


class Pages:
    """The pages of a lake.

    Parameters
    ----------
    lake : Lake
        The lake, on its main line.
    access : Access
        Decides which requests are answered. A page may show any state of the lake, so a token must
        have the right to read them all.
    """

    def __init__(self, lake: Lake, access: Access) -> None:
        self._lake, self._access = lake, access
        self._cookies = Cookies(lake.root, tuple(access.tokens), lake._client.context.clock)
        self._templates = _environment()

    @property
    def routes(self) -> list[Route]:
        """The routes of all pages, and of their style."""
        found = [Route(path, self._guarded(self._view(path, view))) for path, _, view in _VIEWS]
        return [
            *found,
            Route("/page.css", self._style),
            Route("/sign-in", self._guarded(self._sign_in), methods=["GET", "POST"]),
            Route("/sign-out", self._guarded(self._sign_out), methods=["POST"]),
        ]

    def error(self, refusal: Refusal, **about: Any) -> Response:
        """Return a page that says what is wrong."""
        values = {"status": refusal.status, "message": for_pages(refusal.message)}
        answer = self._page(Body("error.html", "Not shown", values, refusal.status), **about)
        if refusal.retry_seconds is not None:
            answer.headers["Retry-After"] = str(refusal.retry_seconds)
        return answer

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        """Return an endpoint that answers errors with pages, which have nothing of a stack."""

        async def answer(request: Request) -> Response:
            try:
                return await endpoint(request)
            except Refusal as error:
                refusal = error
            except LakeVillaError as error:
                refusal = refusal_of(error, writes=False)
            except Exception:
                _LOG.exception("%s", request.scope["route"].path)
                message = "an error of the gateway: its log has more"
                refusal = Refusal(500, "InternalServerError", message)
            return self.error(refusal, **getattr(request.state, "about", {}))

        return answer

    def _view(self, path: str, view: View) -> Endpoint:
        async def answer(request: Request) -> Response:
            token = self._cookies.token_of(request)
            try:
                self._check(request, token)
            except Refusal as refusal:
                if refusal.status != 401:
                    raise
                return self._form(address(path, **request.query_params), refusal.status)
            request.state.about = {
                "path": path,
                "on_main": address(path, **(dict(request.query_params) | {"on": ""})),
                "menu": _MENU,
                "root": self._lake.root,
                "signed_in": token is not None,
            }
            params = Params(request.query_params, _is_from_elsewhere(request))
            return await run_in_threadpool(self._answer, view, params, request.state.about)

        return answer

    def _check(self, request: Request, token: str | None) -> None:
        if not self._access.rights(request, token).may("*", writes=False):
            message = (
                "a page may show any state of the lake, and this token has the right to some "
                "alone: go back, and sign in with a token that may read them all"
            )
            raise Refusal(403, "ForbiddenException", message)

    async def _sign_in(self, request: Request) -> Response:
        if request.method != "POST":  # the page of a token that was wrong is loaded again
            return RedirectResponse("/", 303, _HEADERS)
        form = await form_of(request)
        token, to = form.get("token", "").strip(), path_in(form.get("to", ""))
        try:
            self._check(request, token)
        except Refusal as refusal:
            if refusal.status != 401:
                raise
            return self._form(to, refusal.status, wrong=True)
        answer = RedirectResponse(to, 303, _HEADERS)
        if token in self._access.tokens:
            self._cookies.set(request, answer, token)
        return answer

    async def _sign_out(self, request: Request) -> Response:
        await form_of(request)
        answer = RedirectResponse("/", 303, _HEADERS)
        self._cookies.end(answer)
        return answer

    async def _style(self, request: Request) -> Response:
        headers = {**_HEADERS, "Cache-Control": "max-age=60"}
        return Response(_STYLE, headers=headers, media_type="text/css")

    def _form(self, to: str, status: int, *, wrong: bool = False) -> Response:
        return self._page(Body("sign_in.html", "Sign in", {"to": to, "wrong": wrong}, status))

    def _answer(self, view: View, params: Params, about: Mapping[str, Any]) -> Response:
        shown = shown_state(self._lake, params.text("on"))
        return self._page(view(shown, params), **about, on=shown.on)

    def _page(self, body: Body, **about: Any) -> Response:
        values = {
            "title": body.title,
            "now": utc_datetime(self._lake._client.context.now_ms()),
            # A page for somebody to whom nothing else may be shown does not name the lake.
            "path": None,
            "on_main": "/",
            "on": None,
            "menu": (),
            "root": "",
            "signed_in": False,
        }
        template = self._templates.get_template(body.template)
        rendered = template.render({**values, **about, **body.values})
        return HTMLResponse(rendered.encode("utf-8", "replace"), body.status, dict(_HEADERS))


def _is_from_elsewhere(request: Request) -> bool:
    """Return whether a page of another place has led to a request.

    Raises
    ------
    Refusal
        No person has followed a link: that page could not read the answer, but have the gateway
        work.
    """
    asked = request.headers
    found = asked.get("sec-fetch-site") in ("cross-site", "same-site")
    if found and asked.get("sec-fetch-mode") != "navigate":
        message = "a page elsewhere asks for this: open it in the browser"
        raise Refusal(403, "ForbiddenException", message)
    return found


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
        "quoted": quoted,
    }
    found.globals |= {"address": text.address}
    return found

"""The routes of Iceberg's REST catalog protocol, as an application of ASGI.

Each route reads its request, lets the catalog answer, and says so in the protocol's JSON. What the
gateway does not have is not among the endpoints that it advertises, and is refused by name.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lakevilla.api.given import TableWish
from lakevilla.errors import LakeVillaError
from lakevilla.formats.iceberg.metadata.file import Metadata
from lakevilla.formats.iceberg.metadata.updates import refs_of
from lakevilla.global_log.namespaces import Namespace
from lakevilla.serve.access import EVERYTHING, Access, Rights
from lakevilla.serve.catalog import Catalog, Change
from lakevilla.serve.limits import Limits, Turns
from lakevilla.serve.names import parse_namespace, refuse_long
from lakevilla.serve.page.routes import Pages
from lakevilla.serve.refusal import Refusal, may_have_been_merged, not_built, refusal_of
from lakevilla.serve.states import state_named

_LOG = logging.getLogger("lakevilla.serve")
#: A request's body, also unpacked, has at most so many bytes.
_MOST_BODY_BYTES = 16 << 20
#: A page has at most so many names.
_MOST_NAMES = 10_000
#: A commit has at most so many updates, and as many requirements, of so many tables.
_MOST_UPDATES = 1000
_MOST_TABLES = 256
_KEY = "idempotency-key"

#: The path of probes.
READY = "/ready"
_NAMESPACES = "/namespaces"
_NAMESPACE = "/namespaces/{namespace}"
_TABLES = "/namespaces/{namespace}/tables"
_TABLE = "/namespaces/{namespace}/tables/{table}"


@dataclass(frozen=True, slots=True)
class Call:
    """A request as a route sees it: the words of its path, its parameters, body, and rights."""

    path: Mapping[str, str]
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    rights: Rights = EVERYTHING

    @property
    def namespace(self) -> Namespace:
        return parse_namespace(self.path["namespace"])

    @property
    def table(self) -> tuple[Namespace, str]:
        return self.namespace, self.path["table"]

    def field(self, name: str, kind: type[Any]) -> Any:
        """Return a field of the body.

        Raises
        ------
        Refusal
            It is absent, or of another type.
        """
        return _of(self.body, name, kind, "the body")

    @property
    def page(self) -> tuple[int | None, str | None]:
        """The size of the page that the client asks for, and the token with which it begins."""
        size, token = self.params.get("pageSize"), self.params.get("pageToken") or None
        if size is None:
            return (None if token is None else _MOST_NAMES), token
        if not re.fullmatch("[0-9]{1,18}", size) or not int(size) > 0:
            raise Refusal(
                400, "BadRequestException", f"pageSize is {size[:30]!r}: give a number above 0"
            )
        return min(int(size), _MOST_NAMES), token


def _of(part: Mapping[str, Any], name: str, kind: type[Any], where: str) -> Any:
    try:
        return msgspec.convert(part[name], kind)
    except KeyError:
        raise Refusal(400, "BadRequestException", f"{where} has no {name!r}") from None
    except msgspec.ValidationError as error:
        raise Refusal(400, "BadRequestException", f"{name!r} of {where}: {error}") from None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: a value to be sent as JSON, its text, or neither (204 and 304)."""

    value: object = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Catalog, Call], Answer]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route of the protocol; ``writes``: it changes the lake; ``commits``: by a commit to tables,
    which a branch takes, too.
    """

    method: str
    path: str
    handler: Handler
    writes: bool = False
    commits: bool = False


class Agents(Protocol):
    """The tools of agents, as a gateway has them among its routes."""

    @property
    def route(self) -> Route: ...
    @property
    def lifespan(self) -> Callable[[Starlette], AbstractAsyncContextManager[None]]: ...


def application(
    catalog: Catalog,
    access: Access | None = None,
    limits: Limits | None = None,
    agents: Agents | None = None,
) -> ASGIApp:
    """Return the application that answers for a catalog."""
    allowed, turns = access or Access(), Turns(limits or Limits())
    config = _endpoint(catalog, allowed, turns, Endpoint("GET", "", _config))
    routes = [Route(READY, _ready), Route("/v1/config", config)]
    for start in ("/v1", "/v1/{prefix}"):  # the lake itself, or another state of it
        for one in _ENDPOINTS:
            answer = _endpoint(catalog, allowed, turns, one)
            routes.append(Route(f"{start}{one.path}", answer, methods=[one.method]))
    pages = Pages(catalog.lake, allowed)

    async def no_route(request: Request, error: Exception) -> Response:
        message = f"the gateway has no {request.method} {request.url.path}"
        if request.url.path.endswith("/oauth/tokens"):  # a client with a credential asks here
            message += ": it gives out no tokens; give the client one of its token file, as `token`"
        refusal = Refusal(404, "BadRequestException", message)
        return _error(refusal) if request.url.path.startswith("/v1") else pages.error(refusal)

    routes += pages.routes
    routes += [] if agents is None else [agents.route]
    app = Starlette(
        routes=routes,
        exception_handlers={404: no_route, 405: no_route},
        lifespan=None if agents is None else agents.lifespan,
    )
    app.router.redirect_slashes = False
    return _ByRawPath(app)


class _ByRawPath:
    """Routes a request by its path as it was sent: a name may have a slash, encoded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        await self._app(scope, receive, send)


def _endpoint(
    catalog: Catalog, access: Access, turns: Turns, one: Endpoint
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            rights = access.rights(request)

            async def call() -> Call:
                path = {name: unquote(word) for name, word in request.path_params.items()}
                body = await _body(request)
                return Call(path, request.query_params, request.headers, body, rights)

            def handled(call: Call) -> Response:
                return _response(_handle(catalog, one, call))

            return await turns.answered(call, handled, writes=one.writes)
        except Refusal as refusal:
            return _error(refusal)
        except LakeVillaError as error:
            return _error(refusal_of(error, writes=one.writes))
        except ClientDisconnect:  # before the end of its body: nothing was done, nobody listens
            return Response(status_code=400)
        except Exception:
            _LOG.exception("%s %s", request.method, request.url.path)
            message = "an error of the gateway: its log has more"
            return _error(Refusal(500, "InternalServerError", message))

    return answer


async def _ready(request: Request) -> Response:
    """Answer whoever asks: a probe has no token, and calls the gateway by its address."""
    return Response(status_code=204)


def _handle(catalog: Catalog, one: Endpoint, call: Call) -> Answer:
    prefix = call.path.get("prefix")
    if one.path:  # the configuration is of a state that a parameter names
        call.rights.check(state_named(prefix), writes=one.writes)
    try:
        catalog = catalog.at(prefix)
    except Refusal as refusal:
        if one.commits:
            raise may_have_been_merged(refusal.message) from None
        raise
    if one.writes and catalog.read_only and not one.commits:
        message = "only read here: tags and versions are, and a gateway with --read-only"
        raise Refusal(403, "ForbiddenException", message)
    if one.writes and catalog.keeps_names and not one.commits:
        raise not_built(
            "make, drop and rename tables and namespaces on a branch: do it on the lake"
        )
    try:
        return one.handler(catalog, call)
    except Refusal as refusal:
        if not (one.writes and refusal.status == 503):
            raise
        # The change is made, and its result can't be shown: a 503 would be leave to send it again.
        raise Refusal(500, "CommitStateUnknownException", refusal.message) from None


async def _body(request: Request) -> Mapping[str, Any]:
    """Return the JSON object in a request's body.

    Raises
    ------
    Refusal
        The body is too large, or no JSON object.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BODY_BYTES:
            raise _too_large()
    if request.headers.get("content-encoding") == "gzip":
        unpacking = zlib.decompressobj(31)
        try:
            body = unpacking.decompress(body, _MOST_BODY_BYTES)
        except zlib.error as error:
            raise Refusal(400, "BadRequestException", f"the body is no gzip: {error}") from None
        if unpacking.unconsumed_tail:
            raise _too_large()
    if not body:
        return {}
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        # A form of a page elsewhere can send no such type without the browser's asking first.
        raise Refusal(415, "BadRequestException", "the body must be of type application/json")
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Refusal(400, "BadRequestException", f"the body is no JSON object: {error}") from None


def _too_large() -> Refusal:
    message = f"the body has more than {_MOST_BODY_BYTES} bytes"
    return Refusal(413, "BadRequestException", message)


def _response(answer: Answer) -> Response:
    if answer.value is None:
        return Response(status_code=answer.status, headers=dict(answer.headers))
    body = answer.value if isinstance(answer.value, bytes) else msgspec.json.encode(answer.value)
    headers = dict(answer.headers)
    return Response(body, answer.status, headers, media_type="application/json")


def _error(refusal: Refusal) -> Response:
    told = {"message": refusal.message, "type": refusal.kind, "code": refusal.status}
    after = refusal.retry_seconds
    headers = {} if after is None else {"Retry-After": str(after)}
    return _response(Answer({"error": told}, refusal.status, headers))


# -------------------- endpoints


def _config(catalog: Catalog, call: Call) -> Answer:
    warehouse = call.params.get("warehouse") or ""
    _, has_state, name = warehouse.partition("@")
    if not has_state:
        catalog.refuse_state_alone(warehouse)
    overrides = {"namespace-separator": "%1F"}
    if has_state:
        overrides["prefix"] = catalog.prefix_of(name)
    prefix = overrides.get("prefix")
    state, catalog = state_named(prefix), catalog.at(prefix)
    call.rights.check(state, writes=False)
    may_write = call.rights.may(state, writes=True) and not catalog.read_only
    return Answer(
        {
            "defaults": {},
            "overrides": overrides,
            "endpoints": [
                f"{one.method} /v1/{{prefix}}{one.path}"
                for one in _ENDPOINTS
                if not one.writes or (may_write and not (catalog.keeps_names and not one.commits))
            ],
        }
    )


def _list_namespaces(catalog: Catalog, call: Call) -> Answer:
    # Clients encode the namespace as in a path, and then the parameter.
    parent = unquote(call.params.get("parent", ""))
    found, token = catalog.namespaces(parse_namespace(parent) if parent else (), *call.page)
    return Answer({"namespaces": found, "next-page-token": token})


def _make_namespace(catalog: Catalog, call: Call) -> Answer:
    namespace = call.field("namespace", Namespace)
    properties = call.field("properties", dict[str, str]) if call.body.get("properties") else {}
    if not namespace or not all(namespace):
        raise Refusal(400, "BadRequestException", "a namespace needs a name, and no part is empty")
    refuse_long(namespace)
    catalog.make_namespace(namespace, properties)
    return Answer({"namespace": namespace, "properties": properties})


def _load_namespace(catalog: Catalog, call: Call) -> Answer:
    return Answer({"namespace": call.namespace, "properties": catalog.properties(call.namespace)})


def _has_namespace(catalog: Catalog, call: Call) -> Answer:
    catalog.properties(call.namespace)
    return Answer(status=204)


def _drop_namespace(catalog: Catalog, call: Call) -> Answer:
    catalog.drop_namespace(call.namespace)
    return Answer(status=204)


def _change_properties(catalog: Catalog, call: Call) -> Answer:
    updates = call.field("updates", dict[str, str]) if call.body.get("updates") else {}
    removals = call.field("removals", list[str]) if call.body.get("removals") else []
    if both := updates.keys() & set(removals):
        message = f"properties that are both set and removed: {', '.join(sorted(both))}"
        raise Refusal(422, "UnprocessableEntityException", message)
    before = catalog.change_properties(call.namespace, updates, removals)
    return Answer(
        {
            "updated": sorted(updates),
            "removed": [name for name in removals if name in before],
            "missing": [name for name in removals if name not in before],
        }
    )


def _list_tables(catalog: Catalog, call: Call) -> Answer:
    namespace = call.namespace
    found, token = catalog.tables(namespace, *call.page)
    identifiers = [{"namespace": namespace, "name": table} for table in found]
    return Answer({"identifiers": identifiers, "next-page-token": token})


def _has_table(catalog: Catalog, call: Call) -> Answer:
    catalog.has(*call.table)
    return Answer(status=204)


def _load_table(catalog: Catalog, call: Call) -> Answer:
    document, uri = catalog.load(*call.table)
    shown = call.params.get("snapshots", "all")
    # A table that is made again in the place of a dropped one has files of the same names.
    what = f"{document.table_id} {uri} {shown}"
    tag = f'"{sha256(what.encode()).hexdigest()[:32]}"'
    known = [
        one.strip().removeprefix("W/") for one in call.headers.get("if-none-match", "").split(",")
    ]
    if tag in known:
        return Answer(status=304, headers={"ETag": tag})
    return Answer(_loaded(document, uri, only_refs=shown == "refs"), headers={"ETag": tag})


def _loaded(document: Metadata, uri: str, *, only_refs: bool = False) -> bytes:
    """Return the answer to a load: the metadata is the text of its file, unless it is filtered."""
    text = document.encode()
    if only_refs:
        parts = msgspec.json.decode(text, type=dict[str, Any])
        named = {ref["snapshot-id"] for ref in refs_of(parts).values()}
        snapshots: Sequence[Mapping[str, Any]] = parts.get("snapshots") or ()
        parts["snapshots"] = [one for one in snapshots if one["snapshot-id"] in named]
        text = msgspec.json.encode(parts)
    where = msgspec.json.encode(uri)
    return b'{"metadata-location":%b,"metadata":%b,"config":{}}' % (where, text)


def _drop_table(catalog: Catalog, call: Call) -> Answer:
    purge = call.params.get("purgeRequested", "false").lower() == "true"
    catalog.drop(*call.table, purge=purge)
    return Answer(status=204)


def _rename_table(catalog: Catalog, call: Call) -> Answer:
    catalog.rename(_identifier(call, "source"), _identifier(call, "destination"))
    return Answer(status=204)


def _identifier(call: Call, name: str) -> tuple[Namespace, str]:
    found = call.field(name, _Identifier)
    if not found.name or not found.namespace or not all(found.namespace):
        raise Refusal(400, "BadRequestException", f"a part of the name in {name!r} is empty")
    return found.namespace, found.name


class _Identifier(msgspec.Struct, frozen=True):
    """A table, as a body names it."""

    namespace: Namespace
    name: str


def _register_table(catalog: Catalog, call: Call) -> Answer:
    namespace, table = call.namespace, call.field("name", str)
    catalog.register(namespace, table, call.field("metadata-location", str))
    return Answer(_loaded(*catalog.load(namespace, table)))


def _report_metrics(catalog: Catalog, call: Call) -> Answer:
    return Answer(status=204)


def _commit_table(catalog: Catalog, call: Call) -> Answer:
    change = _change(call.table, call.body)
    (found,) = catalog.commit([change], call.headers.get(_KEY)).values()
    return Answer(_loaded(*found))


def _commit_tables(catalog: Catalog, call: Call) -> Answer:
    parts = call.field("table-changes", list[dict[str, Any]])
    _check_number("tables", len(parts), _MOST_TABLES)
    changes = []
    for number, part in enumerate(parts):
        table = _of(part, "identifier", _Identifier, f"table change {number}")
        changes.append(_change((table.namespace, table.name), part))
    _check_number("updates", sum(len(change.updates) for change in changes))
    _check_number("requirements", sum(len(change.requirements) for change in changes))
    if not changes:
        raise Refusal(400, "BadRequestException", "'table-changes' of the body is empty")
    catalog.commit(changes, call.headers.get(_KEY))
    return Answer(status=204)


def _change(table: tuple[Namespace, str], part: Mapping[str, Any]) -> Change:
    requirements, updates = (
        _of(part, name, list[dict[str, Any]], "the body") if part.get(name) else []
        for name in ("requirements", "updates")
    )
    _check_number("updates", len(updates))
    _check_number("requirements", len(requirements))
    return Change(table, requirements, updates)


def _check_number(what: str, number: int, most: int = _MOST_UPDATES) -> None:
    if number > most:
        message = f"a commit has {number} {what}: {most} are the most"
        raise Refusal(413, "BadRequestException", message)


def _make_table(catalog: Catalog, call: Call) -> Answer:
    namespace = call.namespace
    try:
        wish = msgspec.convert(call.body, TableWish)
    except msgspec.ValidationError as error:
        raise Refusal(400, "BadRequestException", f"the body: {error}") from None
    if not wish.name:
        raise Refusal(400, "BadRequestException", "a table needs a name")
    if call.body.get("stage-create"):
        return Answer({"metadata": catalog.stage(namespace, wish), "config": {}})
    return Answer(_loaded(*catalog.make(namespace, wish)))


_ENDPOINTS = (
    Endpoint("GET", _NAMESPACES, _list_namespaces),
    Endpoint("POST", _NAMESPACES, _make_namespace, writes=True),
    Endpoint("GET", _NAMESPACE, _load_namespace),
    Endpoint("HEAD", _NAMESPACE, _has_namespace),
    Endpoint("DELETE", _NAMESPACE, _drop_namespace, writes=True),
    Endpoint("POST", f"{_NAMESPACE}/properties", _change_properties, writes=True),
    Endpoint("GET", _TABLES, _list_tables),
    Endpoint("POST", _TABLES, _make_table, writes=True),
    Endpoint("GET", _TABLE, _load_table),
    Endpoint("HEAD", _TABLE, _has_table),
    Endpoint("POST", _TABLE, _commit_table, writes=True, commits=True),
    Endpoint("DELETE", _TABLE, _drop_table, writes=True),
    Endpoint("POST", f"{_NAMESPACE}/register", _register_table, writes=True),
    Endpoint("POST", "/tables/rename", _rename_table, writes=True),
    Endpoint("POST", f"{_TABLE}/metrics", _report_metrics),
    Endpoint("POST", "/transactions/commit", _commit_tables, writes=True, commits=True),
)

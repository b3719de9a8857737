"""Requests of strangers: those of engines and people to the gateway, and of agents to its tools."""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from lakevilla.formats.iceberg.metadata.file import Metadata, decode_metadata
from lakevilla.formats.iceberg.metadata.requirements import check_requirements
from lakevilla.formats.iceberg.metadata.updates import updated
from lakevilla.serve.access import Access
from lakevilla.serve.agents.limits import AgentLimits
from lakevilla.serve.agents.session import Given
from lakevilla.serve.app import application
from lakevilla.serve.catalog import Catalog
from lakevilla.serve.limits import Limits
from lakevilla_testing.fuzzing.documents import of_documents
from lakevilla_testing.fuzzing.lakes import lake_of, opened, store_of
from lakevilla_testing.fuzzing.target import Target


def request_targets() -> dict[str, Target]:
    """Return the targets of requests by name."""
    return {
        "gateway": of_documents("gateway", _requests(), _asked, is_work=True),
        "tools of agents": of_documents("tools of agents", _CALLS, _called, is_work=True),
        "updates of Iceberg": of_documents("updates of Iceberg", _CHANGES, _changed),
    }


# -------------------- the gateway


class _Logged(logging.Handler):
    """The last error that the gateway has logged, and answered by 500."""

    error: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.error = record.exc_info[1]


def _asked(document: Any) -> None:
    """Send a request to the gateway of a new lake; raise what it has logged."""
    request = document if isinstance(document, dict) else {"body": document}
    with warnings.catch_warnings(), opened(store_of(lake_of("iceberg"))) as lake, _noted() as noted:
        warnings.simplefilter("ignore")
        app = application(Catalog(lake), Access(hosts=None), Limits(requests=1))
        asyncio.run(_answered(app, request))
    if noted.error is not None:
        raise noted.error


@contextmanager
def _noted() -> Iterator[_Logged]:
    log, noted = logging.getLogger("lakevilla.serve"), _Logged()
    log.addHandler(noted)
    log.propagate = False
    try:
        yield noted
    finally:
        log.removeHandler(noted)
        log.propagate = True


async def _answered(app: Any, request: Mapping[str, Any]) -> list[Any]:
    body = request.get("body")
    sent = b"" if body is None else body.encode() if isinstance(body, str) else _json(body)
    headers = request.get("headers")
    given = headers if isinstance(headers, dict) else {}
    listed = {"host": "localhost", "content-type": "application/json", **given}
    path = _bytes(request.get("path", "/v1/transactions/commit"))
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": str(request.get("method", "POST")),
        "scheme": "http",
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": _bytes(request.get("query", "")),
        "headers": [(_bytes(name).lower(), _bytes(value)) for name, value in listed.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8181),
    }
    answers: list[Any] = []
    parts = iter([{"type": "http.request", "body": sent, "more_body": False}])

    async def receive() -> Mapping[str, Any]:
        return next(parts, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        answers.append(message)

    await app(scope, receive, send)
    return answers


def _json(body: Any) -> bytes:
    return json.dumps(body).encode("utf-8", "surrogatepass")


def _bytes(value: Any) -> bytes:
    """Return a part of a request's head as a server passes it: of one line."""
    return str(value).encode("utf-8", "surrogatepass").replace(b"\n", b"").replace(b"\r", b"")


_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long", "doc": "a key"},
        {"id": 2, "name": "price", "required": False, "type": "decimal(9, 2)"},
        {
            "id": 3,
            "name": "tags",
            "required": False,
            "type": {
                "type": "list",
                "element-id": 4,
                "element": "string",
                "element-required": True,
            },
        },
    ],
    "identifier-field-ids": [1],
}
_SPEC = {
    "spec-id": 0,
    "fields": [{"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[4]"}],
}
_ORDER = {
    "order-id": 1,
    "fields": [
        {"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
    ],
}
_SNAPSHOT = {
    "snapshot-id": 3051729675574597004,
    "sequence-number": 90,
    "timestamp-ms": 1_800_000_200_000,
    "manifest-list": "memory://lake/t/metadata/snap-1.avro",
    "summary": {"operation": "append", "added-data-files": "1"},
    "schema-id": 0,
}
_STATISTICS = {
    "snapshot-id": 1,
    "statistics-path": "memory://lake/t/metadata/s.puffin",
    "file-size-in-bytes": 400,
    "file-footer-size-in-bytes": 40,
    "blob-metadata": [
        {"type": "ndv", "snapshot-id": 1, "sequence-number": 1, "fields": [1], "properties": {}}
    ],
}
_UPDATES: tuple[dict[str, Any], ...] = (
    {"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"},
    {"action": "upgrade-format-version", "format-version": 3},
    {"action": "set-location", "location": "memory://lake/t"},
    {"action": "set-properties", "updates": {"a": "b", "write.format.default": "parquet"}},
    {"action": "remove-properties", "removals": ["a"]},
    {"action": "add-schema", "schema": _SCHEMA, "last-column-id": 9},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "remove-schemas", "schema-ids": [0]},
    {"action": "add-spec", "spec": _SPEC},
    {"action": "set-default-spec", "spec-id": -1},
    {"action": "remove-partition-specs", "spec-ids": [0]},
    {"action": "add-sort-order", "sort-order": _ORDER},
    {"action": "set-default-sort-order", "sort-order-id": -1},
    {"action": "add-snapshot", "snapshot": _SNAPSHOT},
    {
        "action": "set-snapshot-ref",
        "ref-name": "main",
        "type": "branch",
        "snapshot-id": 3051729675574597004,
        "max-ref-age-ms": 1000,
        "min-snapshots-to-keep": 2,
    },
    {"action": "remove-snapshot-ref", "ref-name": "old"},
    {"action": "remove-snapshots", "snapshot-ids": [1, 2]},
    {"action": "set-statistics", "snapshot-id": 1, "statistics": _STATISTICS},
    {"action": "remove-statistics", "snapshot-id": 1},
    {
        "action": "set-partition-statistics",
        "partition-statistics": {
            "snapshot-id": 1,
            "statistics-path": "memory://lake/t/metadata/p.parquet",
            "file-size-in-bytes": 40,
        },
    },
    {"action": "remove-partition-statistics", "snapshot-id": 1},
)
_REQUIREMENTS: tuple[dict[str, Any], ...] = (
    {"type": "assert-create"},
    {"type": "assert-table-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 8},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
)
_TABLE = "/v1/namespaces/root/tables/t"


def _requests() -> list[dict[str, Any]]:
    gets: list[dict[str, Any]] = [
        {"method": "GET", "path": "/v1/config", "query": "warehouse=lake@v1"},
        {
            "method": "GET",
            "path": "/v1/namespaces",
            "query": "parent=a%1Fb&pageSize=3&pageToken=[]",
        },
        {"method": "GET", "path": "/v1/namespaces/root/tables", "query": "pageSize=1"},
        {
            "method": "GET",
            "path": _TABLE,
            "query": "snapshots=refs",
            "headers": {"if-none-match": "W/x"},
        },
        {"method": "GET", "path": "/v1/b/namespaces/root/tables/t"},
        {"method": "HEAD", "path": "/v1/namespaces/a%1Fb"},
        {"method": "GET", "path": "/v1/v3/namespaces/root/tables/t"},
        *(
            {"method": "GET", "path": path, "query": query}
            for path, query in (
                ("/", "on=b&before=5"),
                ("/tables", "on=v1&after=x&q=t"),
                ("/table", "name=t&on=b&show=files&version=3"),
                ("/commit", "version=3"),
                ("/refs", ""),
                ("/compare", "a=v1&b=b&table=t&keys=id"),
                ("/query", "sql=SELECT+*+FROM+t&on=b"),
                ("/activity", ""),
                ("/upkeep", ""),
            )
        ),
    ]
    name = {"namespace": ["root"], "name": "t"}
    change = {"identifier": name, "requirements": list(_REQUIREMENTS[3:5])}
    posts: list[dict[str, Any]] = [
        {"path": "/v1/namespaces", "body": {"namespace": ["a", "b"], "properties": {"x": "y"}}},
        {"path": "/v1/namespaces/a/properties", "body": {"updates": {"a": "b"}, "removals": ["c"]}},
        {
            "path": "/v1/namespaces/root/tables",
            "body": {
                "name": "made",
                "schema": _SCHEMA,
                "partition-spec": _SPEC,
                "write-order": _ORDER,
                "properties": {"format-version": "2"},
                "stage-create": False,
            },
        },
        {
            "path": "/v1/namespaces/root/register",
            "body": {"name": "r", "metadata-location": "memory://lake/t/metadata/v1.metadata.json"},
        },
        {
            "path": "/v1/tables/rename",
            "body": {"source": name, "destination": {"namespace": ["root"], "name": "t9"}},
        },
        {"path": f"{_TABLE}/metrics", "body": {"report-type": "scan-report"}},
        *(
            {
                "path": _TABLE,
                "headers": {"idempotency-key": "018f3d5c-0000-7000-8000-000000000001"},
                "body": {"requirements": [], "updates": [update]},
            }
            for update in _UPDATES
        ),
        {
            "path": "/v1/transactions/commit",
            "body": {"table-changes": [{**change, "updates": list(_UPDATES[3:7])}]},
        },
    ]
    return [
        *gets,
        *({"method": "POST", **one} for one in posts),
        {"method": "DELETE", "path": _TABLE},
    ]


# -------------------- updates alone


def _newest() -> Metadata:
    objects = lake_of("iceberg v3")
    keys = [one for one in objects if one.startswith("t/metadata/v") and one.endswith(".json")]
    return decode_metadata(max(keys), "t", objects[max(keys)])


_CHANGES = [
    *([{"requirements": [], "updates": [one]}] for one in _UPDATES),
    *([{"requirements": [one], "updates": []}] for one in _REQUIREMENTS),
    [{"requirements": [], "updates": list(_UPDATES[3:16])}],
]


def _changed(document: Any) -> None:
    """Apply changes to a table's metadata one after the other, as the gateway does."""
    parts: Any = msgspec.json.decode(_newest().encode())
    for change in document if isinstance(document, list) else []:
        requirements, updates = (
            [one for one in change.get(name) or () if isinstance(one, dict)]
            if isinstance(change, dict) and isinstance(change.get(name), list)
            else []
            for name in ("requirements", "updates")
        )
        check_requirements(parts, requirements, "t")
        parts = updated(parts, updates, 1_800_000_300_000, "t")


# -------------------- tools of agents

_TOOLS: dict[str, tuple[Any, ...]] = {
    "list_tables": (str, str),
    "describe": (str, str),
    "query": (str, str),
    "history": (int, int | None, str),
    "diff": (str, str, str, list[str]),
    "list_branches": (),
    "execute": (str,),
    "changes": (str, list[str]),
    "merge": (dict[str, list[str]],),
    "rebase": (dict[str, list[str]],),
    "discard": (),
}
_CALLS = [
    ["list_tables", "t", ""],
    ["describe", "t", "v1"],
    ["query", "SELECT g, count(*) FROM t AT (VERSION => 3) GROUP BY g", "b"],
    ["query", "SELECT * FROM table_changes('t', 1, 3)", ""],
    ["query", "DESCRIBE t", "b@3"],
    ["history", 3, None, ""],
    ["history", 1, 4, "b"],
    ["diff", "v1", "main", "", []],
    ["diff", "v1", "b", "t", ["id"]],
    ["list_branches"],
    ["execute", "UPDATE t SET x = 'u' WHERE id = 3; INSERT INTO u VALUES (7)"],
    ["execute", "CREATE VIEW w AS SELECT id FROM t"],
    ["changes", "t", ["id"]],
    ["merge", {"t": ["id"]}],
    ["rebase", {}],
    ["discard"],
]


def _called(document: Any) -> None:
    """Call a tool, if its arguments have the types that the protocol's package checks before."""
    if not (isinstance(document, list) and document and document[0] in list(_TOOLS)):
        return
    name, *given = document
    try:
        arguments = [
            msgspec.convert(one, kind) for one, kind in zip(given, _TOOLS[name], strict=True)
        ]
    except (msgspec.ValidationError, ValueError):
        return
    with warnings.catch_warnings(), opened(store_of(lake_of("delta"))) as lake:
        warnings.simplefilter("ignore")
        tools = Given(lake, AgentLimits(), {"some": "SELECT count(*) > 0 FROM t"}).tools()
        if name in ("changes", "merge", "rebase", "discard"):
            tools["execute"]("DELETE FROM t WHERE id = 1")
        tools[name](*arguments)

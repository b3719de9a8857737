"""Perform statements that report on the lake and its tables, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.reads import Reads
from lakevilla.api.session.planning import Host
from lakevilla.api.session.schemas import known_schemas, properties_of_schema
from lakevilla.formats.layout import Layout
from lakevilla.formats.views import view_of
from lakevilla.results import OperationResult
from lakevilla.sql.catalog import NameRange
from lakevilla.sql.expressions.types import type_name
from lakevilla.sql.statements.script.schemas import COMMENT
from lakevilla.sql.statements.script.showing import Describe, Show
from lakevilla.sql.statements.select import MAIN_SCHEMA
from lakevilla.transaction.verbs.catalog.rows import view_rows
from lakevilla.transaction.verbs.read_write import layout_of

__all__ = ["asked", "described", "rows_of", "shown"]

_COLUMNS = pa.schema(
    [
        ("name", pa.string()),
        ("type", pa.string()),
        ("nullable", pa.bool_()),
        ("partition", pa.string()),
        ("comment", pa.string()),
    ]
)
_DETAIL = pa.schema([("name", pa.string()), ("value", pa.string())])
_TIME = pa.timestamp("us", "UTC")
_OWN_VERSIONS = pa.schema(
    [("version", pa.int64()), ("timestamp", _TIME), ("snapshot_id", pa.int64())]
)
_HISTORY = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", _TIME),
        ("operation", pa.string()),
        ("txn_ids", pa.list_(pa.string())),
        ("members", pa.list_(pa.string())),
    ]
)
_TRANSACTIONS = pa.schema(
    [
        ("id", pa.string()),
        ("state", pa.string()),
        ("owner", pa.string()),
        ("started", _TIME),
        ("last_seen", _TIME),
        ("tables", pa.list_(pa.string())),
        ("waits_for", pa.list_(pa.string())),
    ]
)
_VIEWS = pa.schema([("name", pa.string()), ("text", pa.string())])
_SCHEMAS = pa.schema([("name", pa.string()), ("comment", pa.string())])
_SETTINGS = pa.schema([("name", pa.string()), ("value", pa.string())])


def rows_of(state: Reads[Frame], schema: pa.Schema, rows: Iterable[Sequence[object]]) -> Frame:
    """Return rows in memory as a frame of the kind that the lake's callers get."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [
        pa.array(list(values), field.type) for values, field in zip(columns, schema, strict=True)
    ]
    return state._executor.framed(pa.table(arrays, schema=schema))


def shown(
    state: Reads[Frame], node: Show, lake: Host[Frame], settings: Mapping[str, object]
) -> Frame:
    """Return the rows of a SHOW statement, in a transaction or a snapshot."""
    match node.what:
        case "tables":
            text = f"SELECT name, format FROM lakevilla_tables{_in_schema(state, node.schema)}"
            return _named(state, text, node.like)
        case "views":
            return _views(state, node)
        case "schemas":
            return _schemas(state, node.like)
        case "branches" | "tags":
            kind = "branch" if node.what == "branches" else "tag"
            text = (
                "SELECT name, version, base_version, created, protected FROM lakevilla_refs "
                f"WHERE kind = '{kind}'"
            )
            return _named(state, text, node.like)
        case "columns":
            assert node.table is not None
            return described(state, Describe(node.table, "columns"), lake)
        case "versions" if node.table is not None:
            kept = lake.table(node.table).versions()
            rows = [(one.version, one.timestamp, one.snapshot_id) for one in kept]
            return rows_of(state, _OWN_VERSIONS, rows)
        case "versions":
            return asked(
                state,
                "SELECT version, timestamp, txn_id, kind, members, count(*) AS tables FROM "
                "lakevilla_commits GROUP BY ALL ORDER BY version DESC",
            )
        case "transactions":
            found = [
                (x.id, x.state, x.owner, x.started, x.last_seen, list(x.tables), list(x.waits_for))
                for x in lake.transactions()
            ]
            return rows_of(state, _TRANSACTIONS, found)
        case _:
            known = [(name, str(value)) for name, value in sorted(settings.items())]
            return rows_of(state, _SETTINGS, known)


def asked(
    state: Reads[Frame],
    text: str,
    params: Mapping[str, object] | None = None,
    views: Mapping[str, object] | None = None,
) -> Frame:
    """Return the rows of a query."""
    rows = state.sql(text, params, views=views)
    assert not isinstance(rows, OperationResult)
    return rows


def _named(
    state: Reads[Frame], text: str, like: str | None, views: Mapping[str, object] | None = None
) -> Frame:
    """Return the rows of a query with a column ``name``, filtered by SHOW's pattern, if any."""
    if like is None:
        return asked(state, f"{text} ORDER BY name", views=views)
    joined = "AND" if " WHERE " in text else "WHERE"
    text = f"{text} {joined} name LIKE :pattern ORDER BY name"
    return asked(state, text, {"pattern": like}, views)


def _in_schema(state: Reads[Frame], schema: str | None) -> str:
    """Return the condition that a name is one of a schema's own; refuse a schema there is none."""
    if schema is None:
        return ""
    properties_of_schema(state, schema)  # it exists
    if schema == MAIN_SCHEMA:
        # A table in a directory of that name has its whole name in it.
        own = f"{MAIN_SCHEMA}/"
        return (
            f" WHERE (instr(name, '/') = 0 OR (substring(name, 1, {len(own)}) = '{own}' "
            f"AND instr(substring(name, {len(own) + 1}), '/') = 0))"
        )
    above = f"{schema}/".replace("'", "''")
    size = len(schema) + 1
    return (
        f" WHERE substring(name, 1, {size}) = '{above}' "
        f"AND instr(substring(name, {size + 1}), '/') = 0"
    )


def _views(state: Reads[Frame], node: Show) -> Frame:
    """Return the views by name, with their texts."""
    found = views_of_state(state)
    rows = pa.Table.from_pylist(
        [{"name": name, "text": text} for name, text in found.items()], _VIEWS
    )
    if node.schema is None and node.like is None:
        return state._executor.framed(rows)
    text = f"SELECT * FROM views{_in_schema(state, node.schema)}"
    return _named(state, text, node.like, {"views": rows})


def views_of_state(state: Reads[Frame]) -> dict[str, str]:
    """Return the texts of the views that a state has, by name."""
    executor = state._executor
    with executor.verb_scope("views"):
        found = executor.run(view_rows(executor.state, NameRange()))
    views = {name: view_of(snapshot.layout) for name, snapshot in found.items()}
    return {name: view.sql for name, view in views.items() if view is not None}


def _schemas(state: Reads[Frame], like: str | None) -> Frame:
    """Return the schemas by name, with their comments."""
    known = [(name, one.get(COMMENT)) for name, one in known_schemas(state).items()]
    names, comments = zip(*known, strict=True)
    found = pa.table([names, comments], schema=_SCHEMAS)
    if like is None:
        return state._executor.framed(found)
    text = "SELECT * FROM schemas WHERE name LIKE :pattern ORDER BY name"
    return asked(state, text, {"pattern": like}, {"schemas": found})


def described(state: Reads[Frame], node: Describe, lake: Host[Frame]) -> Frame:
    """Return the rows of DESCRIBE for a table; they show the transaction's own changes."""
    if node.what == "history":
        entries = lake.table(node.table).history()
        return rows_of(
            state,
            _HISTORY,
            [
                (x.version, x.timestamp, x.operation, list(x.txn_ids), list(x.members))
                for x in entries
            ],
        )
    executor: Executor[Frame] = state._executor
    with executor.verb_scope("open", node.table):
        location = executor.resolve(node.table)
        layout = executor.run(layout_of(executor.state, location, probing=True))
    if node.what == "columns":
        partitioned_by = {part.column.lower(): part.spelled for part in layout.partition_fields}
        partitioned_by |= {name.lower(): name for name in layout.partition_by}
        return rows_of(
            state,
            _COLUMNS,
            [
                (
                    field.name,
                    type_name(field.type),
                    field.nullable,
                    partitioned_by.get(field.name.lower()),
                    _comment(field),
                )
                for field in layout.schema
            ],
        )
    view = executor.look(node.table)
    found: dict[str, Any] = {
        "uri": executor.client.uri_of(view.location),
        "format": view.snapshot.format,
        "version": view.log_version,
        "partitioned by": ", ".join(layout.partition_by or _spelled(layout)),
        "guarded": view.guarded,
        **dict(sorted(layout.properties.items())),
        **{f"check {rule.name}": rule.sql for rule in layout.constraints},
    }
    rows = [(name, None if value is None else str(value)) for name, value in found.items()]
    return rows_of(state, _DETAIL, rows)


def _spelled(layout: Layout) -> list[str]:
    return [part.spelled for part in layout.partition_fields]


def _comment(field: pa.Field) -> str | None:
    """Return a column's comment in the table's metadata."""
    metadata = field.metadata or {}
    comment = metadata.get(b"comment", metadata.get(b"doc"))
    return None if comment is None else comment.decode(errors="replace")

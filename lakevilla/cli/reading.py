"""Commands that read: rows, tables, and past states."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from lakevilla.cli.command import (
    FINDINGS,
    Json,
    Limit,
    On,
    Options,
    Profile,
    Root,
    TableName,
    command,
    parse_time,
)
from lakevilla.cli.connection import open_lake
from lakevilla.cli.output import Output
from lakevilla.errors import InvalidOperation, RefNotFound

# -------------------- reading
#
# Commands that read a table's columns and versions, or the outcome of a transaction.


@command
def schema(
    root: Root,
    table: TableName,
    on: On = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show a table's columns: names, types, which may be NULL, and which partition it."""
    with open_lake(root, option, profile, on=on) as lake:
        known = lake.table(table)
    rows = [
        {
            "name": field.name,
            "type": str(field.type),
            "nullable": field.nullable,
            "partition": field.name in known.partition_by,
        }
        for field in known.schema
    ]
    Output(as_json).rows(["name", "type", "nullable", "partition"], rows)


@command
def query(
    root: Root,
    path: Annotated[
        str,
        typer.Argument(help="Into the catalog, such as '/sales/*[rows > 0]/files'."),
    ],
    on: On = None,
    limit: Limit = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show the result of a path into the lake's catalog: tables, files, columns, commits."""
    with open_lake(root, option, profile, on=on) as lake:
        found = lake.query(path)
    Output(as_json).frame(found, limit)


@command
def export(
    root: Root,
    table: TableName,
    to: Annotated[str, typer.Argument(help="A path below the root, or a URI, of its own.")],
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy the files, for deltalake and DuckDB on Delta.")
    ] = False,
    on: On = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Write a table, unchanged, as one of its own elsewhere, for readers without LakeVilla."""
    with open_lake(root, option, profile, on=on) as lake:
        uri = lake.export(table, to, copy=copy)
    Output(as_json).value(uri, uri)


@command
def versions(
    root: Root,
    table: TableName,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="At most this many, newest first.")
    ] = None,
    on: On = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show the versions of a table's own log that can still be read, newest first."""
    with open_lake(root, option, profile, on=on) as lake:
        known = lake.table(table)
        found = known.versions(limit)
    columns = ["version", "timestamp", *(["snapshot_id"] if known.format == "iceberg" else [])]
    rows = [{column: getattr(kept, column) for column in columns} for kept in found]
    Output(as_json).rows(columns, rows)


@command
def outcome(
    root: Root,
    txn_id: Annotated[str | None, typer.Argument(help="The transaction's id.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="The idempotency key that it was given, instead.")
    ] = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show how a transaction ended; an undecided one is ended by this query.

    Exits with 1 unless it has committed. To check without ending it: `lakevilla txns`.
    """
    if (txn_id is None) == (key is None):
        raise InvalidOperation("outcome takes a transaction's id, or --key and the key")
    with open_lake(root, option, profile) as lake:
        found = lake.outcome(txn_id, idempotency_key=key)
    result = found.result
    text = f"{'transaction ' + txn_id if txn_id is not None else 'key ' + str(key)}: {found.state}"
    if result is not None and result.global_version is not None:
        text += f" as global version {result.global_version}"
    if result is not None and result.versions:
        # The log versions of the tables are known only if the outcome's result has them.
        text += ": " + ", ".join(
            name if one is None else f"{name} {one}"
            for name, one in sorted(result.versions.items())
        )
    Output(as_json).value(found, text)
    if found.state != "committed":
        raise typer.Exit(FINDINGS)


# -------------------- states
#
# The forms in which commands name a state of the lake: a version, a time or a ref.


def state(text: str, argument: str) -> int | datetime | str:
    """Parse the name of a state: a version, a time or a ref.

    A text with a colon is a time, because no ref's name has one; nor is a ref's name a number.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    found = parse_time(text, argument) if ":" in text else None
    return text if found is None else found


@contextlib.contextmanager
def time_hint(*given: str | None) -> Iterator[None]:
    """Add, to the error for a missing ref, the form of a time, if the text looks like a date."""
    try:
        yield
    except RefNotFound as error:
        for text in given:
            if text is not None and re.fullmatch(r"\d{4}-?\d\d.*", text) and text in error.message:
                error.message += (
                    f"; if {text!r} is meant as a time, write it as 2026-01-31T12:00:00Z"
                )
        raise

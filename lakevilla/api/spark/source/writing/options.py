"""The options of a writer, and their meaning."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, get_args

from lakevilla.api.spark.source.options import without_root
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import FormatName
from lakevilla.global_log.keys import parse_key
from lakevilla.global_log.refs import MAIN
from lakevilla.settings import shown

__all__ = ["NO_OPTIONS", "SchemaMode", "WriteOptions"]

SchemaMode = Literal["merge", "overwrite"]
IfExists = Literal["append", "error", "ignore"]

_OF_BOTH = ("lake", "table", "ref", "mergeSchema", "partitionBy", "tableFormat", "properties")
_OF_BATCH = (
    "replaceWhere",
    "partitionOverwriteMode",
    "overwriteSchema",
    "ifExists",
    "readVersion",
    "idempotencyKey",
    "txnAppId",
    "txnVersion",
    "metadata",
)
_OF_STREAM = ("queryId",)
#: Advice on writing by SQL: Spark passes the options of a table in its catalog to no Python source.
NO_OPTIONS = (
    "for a table of its catalog Spark hands no options to a Python data source, so it knows "
    "neither lake nor table: use CREATE TEMPORARY VIEW v USING lakevilla OPTIONS "
    "(lake '...', table '...') and SELECT from it or INSERT INTO it; lake.create_table creates a "
    "table of the lake, and so does the first write to it, "
    "df.write.format('lakevilla').option('lake', '...').mode('append').save('...')"
)
#: Spark's own options, in lower case: the directory of a stream's offsets, and the stream's name.
_SPARKS = frozenset({"checkpointlocation", "queryname"})


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The request of a writer.

    Attributes
    ----------
    lake, table : str
    ref : str or None
        The name of a branch; None for the lake itself.
    overwrite : bool
        True if rows are replaced.
    where : str or None
        A predicate for the rows that are replaced; None for all.
    by_partition : bool
        True if the rows are replaced in all partitions of which the data has rows.
    schema_mode : str or None
        How the table's columns change: some are added, or all are replaced.
    if_exists : str
        What happens if the table exists.
    partition_by, format, properties
        The definition of a table that does not exist yet.
    read_version : int or None
        The global version of which the rows were computed.
    key : str, (str, int) or None
        An idempotency key, or an application and a version of it.
    query_id : str or None
        The application whose versions are the batches of a stream.
    checkpoint_location, query_name : str or None
        Spark's options of the stream.
    metadata : dict
        Entries for the table's commit.
    """

    lake: str
    table: str
    ref: str | None
    overwrite: bool
    where: str | None
    by_partition: bool
    schema_mode: SchemaMode | None
    if_exists: IfExists
    partition_by: tuple[str, ...]
    format: FormatName
    properties: dict[str, str | bool | int | float]
    read_version: int | None
    key: str | tuple[str, int] | None
    query_id: str | None
    checkpoint_location: str | None
    query_name: str | None
    metadata: dict[str, str]

    @classmethod
    def of(
        cls,
        options: Mapping[str, str],
        *,
        overwrite: bool,
        streaming: bool = False,
        roots: Sequence[str] = (),
    ) -> WriteOptions:
        """Parse the options that Spark passes: names in any letter case, ``save``'s table as
        ``path``.

        ``roots`` are those of the session's lakes, for a message.

        Raises
        ------
        InvalidOperation
            An option is missing, unknown, not valid, or excludes another. The message does not
            repeat the value of an unknown option, which may be a secret key.
        """
        known = _OF_BOTH + (_OF_STREAM if streaming else _OF_BATCH)
        given = {name.lower(): value for name, value in options.items()}
        path = given.pop("path", None) or None
        _refuse_unknown(given.keys() - _SPARKS, known, streaming=streaming)
        if not options:
            raise InvalidOperation(NO_OPTIONS)
        table = given.get("table") or None
        if path and table and path != table:
            raise InvalidOperation(f"the table is {table!r} by its option and {path!r} by its path")
        start = "start" if streaming else "save"
        if not given.get("lake"):
            raise without_root(start, path or table, roots)
        if not (path or table):
            raise InvalidOperation(
                f"the data source lakevilla needs a table's name: .{start}('sales/orders')"
            )
        ref = given.get("ref")
        query_id = _query_id(given.get("queryid")) if streaming else None
        if streaming and ref not in (None, MAIN):
            raise InvalidOperation(
                f"a stream counts its batches in the lake itself, and {ref!r} is a branch: leave "
                "option ref out"
            )
        made = cls(
            lake=given["lake"],
            table=path or table or "",
            ref=None if ref == MAIN else ref,
            overwrite=overwrite,
            where=given.get("replacewhere"),
            by_partition=_choice(given, "partitionOverwriteMode", "static", "dynamic") == "dynamic",
            schema_mode=_schema_mode(given),
            if_exists=_if_exists(given),
            partition_by=_names(given.get("partitionby")),
            format=_format(given),
            properties=_properties(given.get("properties")),
            read_version=_number(given, "readVersion"),
            key=_key(given),
            query_id=query_id,
            checkpoint_location=given.get("checkpointlocation") if streaming else None,
            query_name=given.get("queryname") if streaming else None,
            metadata=_metadata(given.get("metadata")),
        )
        made._check()
        return made

    def _check(self) -> None:
        needs_overwrite = {
            "replaceWhere": self.where is not None,
            "partitionOverwriteMode": self.by_partition,
            "overwriteSchema": self.schema_mode == "overwrite",
        }
        given = [name for name, is_given in needs_overwrite.items() if is_given]
        if given and not self.overwrite:
            raise InvalidOperation(
                f"option {given[0]} says what is replaced, and an append replaces nothing: use "
                ".mode('overwrite'), or leave it out"
            )
        if len(given) > 1:
            raise InvalidOperation(f"give option {given[0]} or {given[1]}, not both")
        if self.read_version is not None and self.ref is not None:
            raise InvalidOperation(
                "option readVersion is a version of the lake itself, and option ref names branch "
                f"{self.ref!r}: leave one of them out"
            )
        if self.if_exists != "append" and self.overwrite:
            raise InvalidOperation(
                "option ifExists goes with .mode('append'); an overwrite replaces an existing table"
            )


def _refuse_unknown(given: Iterable[str], known: tuple[str, ...], *, streaming: bool) -> None:
    spelled = {name.lower(): name for name in known}
    unknown = sorted(set(given) - spelled.keys())
    if not unknown:
        return
    every = {name.lower(): name for name in _OF_BOTH + _OF_BATCH + _OF_STREAM}
    if unknown[0] in every:
        this_kind, other_kind = (
            ("writeStream", "df.write") if streaming else ("df.write", "writeStream")
        )
        raise InvalidOperation(
            f"option {every[unknown[0]]} belongs to {other_kind}: leave it out; {this_kind} has "
            f"{', '.join(known)}"
        )
    near = get_close_matches(unknown[0], spelled, 1, 0.55)
    hint = f"did you mean {spelled[near[0]]}? " if near else ""
    raise InvalidOperation(
        f"a writer of the data source lakevilla has no option {', '.join(unknown)}: {hint}it has "
        f"{', '.join(known)}; credentials are given to lakevilla.connect(..., spark=)"
    )


def _query_id(text: str | None) -> str:
    if not text:
        raise InvalidOperation(
            "a stream into a lake needs .option('queryId', ...): a name that only this query and "
            "its checkpoint have, the same after each restart; by it each batch takes effect once"
        )
    parse_key((text, 0))
    return text


def _key(given: Mapping[str, str]) -> str | tuple[str, int] | None:
    key, application = given.get("idempotencykey"), given.get("txnappid")
    version = _number(given, "txnVersion")
    if (application is None) != (version is None):
        raise InvalidOperation("options txnAppId and txnVersion go together: give both")
    if application is None or version is None:
        return key
    if key is not None:
        raise InvalidOperation("give option idempotencyKey, or txnAppId and txnVersion, not both")
    return application, version


def _choice(given: Mapping[str, str], name: str, *choices: str) -> str:
    text = given.get(name.lower(), choices[0]).lower()
    if text not in choices:
        raise InvalidOperation(f"option {name} must be {' or '.join(choices)}, not {shown(text)}")
    return text


def _schema_mode(given: Mapping[str, str]) -> SchemaMode | None:
    merges = _choice(given, "mergeSchema", "false", "true") == "true"
    replaces = _choice(given, "overwriteSchema", "false", "true") == "true"
    if merges and replaces:
        raise InvalidOperation("give option mergeSchema or overwriteSchema, not both")
    return "merge" if merges else "overwrite" if replaces else None


def _if_exists(given: Mapping[str, str]) -> IfExists:
    text = _choice(given, "ifExists", *get_args(IfExists))
    return next(one for one in get_args(IfExists) if one == text)


def _format(given: Mapping[str, str]) -> FormatName:
    return "iceberg" if _choice(given, "tableFormat", "delta", "iceberg") == "iceberg" else "delta"


def _names(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise InvalidOperation(
            "option partitionBy must be different names with commas between them, not "
            f"{shown(text)}"
        )
    return tuple(names)


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidOperation(f"option {name} must be a whole number, 0 or more, not {text!r}")
    return int(text)


def _properties(text: str | None) -> dict[str, str | bool | int | float]:
    found = _object("properties", text)
    if not all(isinstance(value, str | bool | int | float) for value in found.values()):
        raise InvalidOperation(
            "option properties must have a string, a number, true or false for each name"
        )
    return found  # type: ignore[return-value]


def _metadata(text: str | None) -> dict[str, str]:
    found = _object("metadata", text)
    if not all(isinstance(value, str) for value in found.values()):
        raise InvalidOperation("option metadata must have a string for each name")
    return found  # type: ignore[return-value]


def _object(name: str, text: str | None) -> dict[str, object]:
    """Return an option's JSON object: an option for each property would lose its letter case."""
    try:
        found = {} if text is None else json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidOperation(
            f'option {name} must be a JSON object, such as \'{{"name": "value"}}\''
        )
    return found

"""Texts and values of users: statements with parameters, paths, expressions, and command lines."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any
from unittest import mock

import lakevilla as lv
import lakevilla.cli.app as _commands  # noqa: F401 (it registers the commands)
from lakevilla import dbapi
from lakevilla.api.catalog.paths import parsed
from lakevilla.api.spark.source.batches import Offset
from lakevilla.cli import connection
from lakevilla.cli.command import app
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.sql.expressions.render import render_sql
from lakevilla.sql.statements.script.cutting import is_complete, statements_of
from lakevilla.sql.statements.statement import is_of_rows, parse_statement
from lakevilla_testing.fuzzing import texts
from lakevilla_testing.fuzzing.choices import Choices
from lakevilla_testing.fuzzing.documents import of_documents
from lakevilla_testing.fuzzing.faults import Fault, faults_of
from lakevilla_testing.fuzzing.lakes import lake_of, opened, store_of
from lakevilla_testing.fuzzing.target import Target


def statement_targets() -> dict[str, Target]:
    """Return the targets of statements and command lines by name."""
    refused = (dbapi.Error,)
    return {
        "statement": of_texts("statement", texts.SOUND["sql"], _parsed),
        "expression": of_texts(
            "expression", [*texts.SOUND["predicate"], *texts.SOUND["expression"]], _read_expression
        ),
        "path": of_texts("path", _PATHS, parsed),
        "query": of_documents("query", [[one, None] for one in _PATHS], _queried, is_work=True),
        "parameters": of_documents("parameters", _PARAMETERS, _with_parameters, is_work=True),
        "dbapi": of_documents("dbapi", [*_PARAMETERS, *_MANY], _by_dbapi, refused, is_work=True),
        "command line": of_documents("command line", _LINES, _commanded, is_work=True),
        "offset": of_documents("offset", _OFFSETS, _read_offset),
    }


def of_texts(name: str, seeds: Any, call: Any) -> Target:
    """Return a target whose input is one text."""

    def judge(data: bytes) -> list[Fault]:
        return faults_of(name, lambda: call(text_of(data)))[0]

    return Target([one.encode() for one in seeds], judge, changed_text)


def text_of(data: bytes) -> str:
    """Return the text of an input."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def changed_text(data: bytes, choices: Choices) -> bytes:
    """Return the input with a few words of its text exchanged."""
    return texts.changed(text_of(data), choices).encode("utf-8", "surrogatepass")


# -------------------- parsers


def _parsed(text: str) -> None:
    is_complete(text)
    for one in statements_of(text):
        if is_of_rows(one.text):
            parse_statement(one.text, ["a", "b"])


def _read_expression(text: str) -> None:
    """Parse a text, and what its tree says as SQL."""
    for parse in (parse_predicate, parse_expression):
        try:
            tree = parse(text)
        except lv.LakeVillaError:
            continue
        parse(render_sql(tree))


_PATHS = (
    "/",
    "/t/snapshots[-1]/files[bytes > 10]",
    "/**/columns[name = 'id']/statistics",
    "/*/commits[version > 2]",
    "/t[rows > 0]/files[partition.g = '1']/statistics",
    "/'t'/snapshots[0]/columns",
)


def _read_offset(document: Any) -> None:
    """Read what a stream of Spark has stored in its checkpoint, as Spark passes it."""
    if isinstance(document, dict):
        Offset.of(document).as_dict()


_OFFSETS = [
    {"version": 3, "within": None, "parts": 0, "lake": "", "life": "", "commit": ""},
    {"version": 3, "within": 4, "parts": 2, "lake": "l", "life": "e", "commit": "c"},
]


# -------------------- calls

_ROW = "INSERT INTO t (id, g, x) VALUES (:a, :b, :c)"
_PARAMETERS: list[Any] = [
    ["SELECT * FROM t WHERE id = :a AND x = :b", {"a": 3, "b": "a3"}],
    ["SELECT :a, :b, :c", {"a": [1, 2], "b": {"c": 1.5}, "c": None}],
    ["SELECT * FROM t WHERE id IN (:a, :b)", {"a": 1, "b": 2}],
    [_ROW, {"a": 90, "b": 1, "c": "z"}],
    ["UPDATE t SET x = :a WHERE id = :b", {"a": "é", "b": 4}],
    ["DELETE FROM t WHERE id > :a", {"a": 10**30}],
    ["SELECT * FROM t LIMIT :a", {"a": 2}],
    ["SELECT * FROM t VERSION AS OF 3 WHERE g = :g", {"g": True}],
]
_MANY: list[Any] = [
    [_ROW, [{"a": 90, "b": 1, "c": "z"}, {"a": 91, "b": 2, "c": None}]],
    ["UPDATE t SET x = :c WHERE id = :a", [{"a": 3, "c": "x"}, {"a": 4, "c": "y"}]],
    ["DELETE FROM t WHERE id = :a", [{"a": 3}, {"a": 4}]],
]


@contextmanager
def _a_lake() -> Iterator[lv.Lake]:
    with warnings.catch_warnings(), opened(store_of(lake_of("delta"))) as lake:
        warnings.simplefilter("ignore")
        yield lake


def _pair(document: Any) -> tuple[Any, Any]:
    is_pair = isinstance(document, list) and len(document) == 2
    return (document[0], document[1]) if is_pair else (document, None)


def _queried(document: Any) -> None:
    path, at = _pair(document)
    with _a_lake() as lake:
        lake.query(path, at=at)


def _with_parameters(document: Any) -> None:
    sql, params = _pair(document)
    with _a_lake() as lake, lake.session(max_rows=10_000, timeout_seconds=1.0) as session:
        session.sql(sql, params)


def _by_dbapi(document: Any) -> None:
    sql, params = _pair(document)
    with (
        _a_lake() as lake,
        dbapi.connect(lake, timeout_seconds=1.0, max_rows=10_000) as connected,
    ):
        cursor = connected.cursor()
        if isinstance(params, list):
            cursor.executemany(sql, params)
        else:
            cursor.execute(sql, params)
            if cursor.description is not None:
                cursor.fetchall()


# -------------------- command lines

#: Commands that reach nothing but the lake.
_OF_A_LAKE = frozenset(
    (
        *("tables", "schema", "rename", "drop", "unregister", "guard", "unguard", "sql", "query"),
        *("log", "versions", "snapshot", "changes", "diff", "absorb", "rollback", "restore"),
        *("revert", "cherry-pick", "branch", "tag", "clone", "refs", "merge", "rebase", "protect"),
        *("unprotect", "keep", "txns", "outcome", "abort", "doctor", "verify", "recover", "gc"),
        *("maintain", "optimize", "vacuum", "ls", "status", "history", "branches", "checkout"),
    )
)
#: Options with which a command reads a file of this machine, or waits for others.
_BEYOND = ("-f", "--f", "--k", "--te", "--poll")
_LINES = [
    line.split("|")
    for line in (
        "tables|L|--json",
        "schema|L|t|--on|b",
        "rename|L|t|t2",
        "drop|L|u",
        "guard|L|t",
        "sql|L|SELECT * FROM t WHERE id = :a|-p|a=3|--json",
        "sql|L|--write|UPDATE t SET x = 'u'|--max-rows|9|--timeout|1.5",
        "query|L|/t/files[bytes > 10]",
        "log|L|--graph|-n|3",
        "versions|L|t|--timestamp|2027-01-15T08:00:00Z",
        "snapshot|L|t|--version|3",
        "changes|L|--since|1|--table|t|--version|3",
        "diff|L|v1|b|--json",
        "rollback|L|v1",
        "revert|L|3",
        "cherry-pick|L|b@9",
        "branch|L|c|--at|3|--metadata|a=b",
        "tag|L|v2|--at|b@3|--tables|t,u",
        "refs|L",
        "merge|L|b",
        "rebase|L|b",
        "keep|L|b",
        "txns|L",
        "outcome|L|--key|k",
        "doctor|L",
        "verify|L|--table|t|--sample|2",
        "recover|L",
        "maintain|L",
        "optimize|L|t|--where|g = 1|--z-order|id|--target-size|1mb",
        "vacuum|L|t|--retention-hours|200|--dry-run",
        "gc|L|--dry-run",
    )
]


def _commanded(document: Any) -> None:
    """Run a command as the shell does: a word has no NUL, and the first one names the command."""
    given = document if isinstance(document, list) else []
    words = [one.replace("\0", "") for one in given if isinstance(one, str)]
    if not words or words[0] not in _OF_A_LAKE:
        return
    if any(one.startswith(_BEYOND) for one in words):
        return
    with (
        opened(store_of(lake_of("delta"))) as lake,
        mock.patch.object(connection, "connected", return_value=lake),
        mock.patch.object(connection, "_check_directory"),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
        suppress(SystemExit),
    ):
        app(args=words)

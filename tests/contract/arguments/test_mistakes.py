"""Wrong values for every argument of every method: the error names the argument, and the call
has no effect.

Python's own signature refuses what is misspelt or missing (``TypeError``); everything else is
an error of LakeVilla's. What happens to be valid may succeed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from tests.support.search import how_many

ROWS = pa.table({"id": [1, 2], "s": ["a", "b"]})
TXN = "01a20414-3970-7e0c-a807-b2d83d4f7006"
ALL = pa.schema([("z", pa.int64())])


def mistakes() -> list[Any]:
    """Return values that few arguments accept, created each time: some can be used only once."""
    return [
        None,
        "",
        " ",
        "x/../y",
        "/",
        "a.b.c",
        "q\"uo'te",
        "a\0b",
        "\ud800",
        "ünï",
        b"t",
        -1,
        1.5,
        float("nan"),
        10**5000,
        True,
        [],
        [None],
        ["id", "id"],
        {5: object()},
        Path("t"),
        datetime(2020, 1, 1),
        timedelta(1),
        np.int64(1),
        np.array([1]),
        ROWS,
        ROWS.schema,
        pc.field("id") > 1,
        pl.col("id") == 1,
        pd.DataFrame({"id": [1]}),
        lambda *given: None,
        (one for one in [1]),
        lv.Feature.R,
        Decimal("NaN"),
        "false and",
        ":n",
        "foo://x",
        int,
        ...,
    ]


def within(argument: str, value: Any) -> Iterable[Any]:
    """Return the mistake nested one level down in arguments that contain values."""
    key = value if type(value).__hash__ and not isinstance(value, pl.Expr) else "key"
    if argument in ("data", "source", "data_or_schema"):
        return [{"id": value}], {"id": [1, value]}, {key: [1]}, [{"id": 1, "s": {"k": value}}]
    if argument in ("assignments", "updates", "metadata", "rename_columns", "add_constraints"):
        return {"s": value}, {key: "1"}
    if argument in ("properties", "set_properties", "catalogs", "storage_options"):
        return {"a": value}, {key: "1"}
    if argument in ("params", "views", "add_columns"):
        return {"n": value}, {"n": [value]}, {"v": value}, {key: 1}
    if argument in ("columns", "keys", "except_cols", "partition_by", "z_order_by"):
        return [value], ["id", value]
    if argument.startswith(("drop_", "unset_")):
        return [value], ["id", value]
    if argument == "idempotency_key":
        return ("a", value), (value, 1)
    return ()


def undone(verb: str) -> Callable[..., None]:
    """Return a function that calls a verb of a transaction and then aborts it."""

    def call(lake: lv.Lake, **given: Any) -> None:
        txn = lake.transaction()
        try:
            found = getattr(txn, verb)(**given)
            if verb == "scan":
                found.read_all()
        finally:
            txn.abort()

    return call


def seen(verb: str) -> Callable[..., None]:
    def call(lake: lv.Lake, **given: Any) -> None:
        with lake.snapshot() as now:
            found = getattr(now, verb)(**given)
            if verb == "scan":
                list(found)

    return call


def clause(verb: str) -> Callable[..., None]:
    def call(lake: lv.Lake, **given: Any) -> None:
        txn = lake.transaction()
        try:
            builder = txn.merge("t", ROWS, "target.id = source.id")
            getattr(builder, verb)(**given).execute()
        finally:
            txn.abort()

    return call


def of_lake(verb: str) -> Callable[..., object]:
    return lambda lake, **given: getattr(lake, verb)(**given)


def of_table(verb: str) -> Callable[..., object]:
    return lambda lake, **given: getattr(lake.table("t"), verb)(**given)


def merge(lake: lv.Lake, **given: Any) -> None:
    txn = lake.transaction()
    try:
        txn.merge(**given).when_matched_update_all().execute()
    finally:
        txn.abort()


def begin(lake: lv.Lake, **given: Any) -> None:
    txn = lake.transaction(**given)
    try:
        txn.read("t")
    finally:
        txn.abort()


def take_turn(lake: lv.Lake, table: Any) -> None:
    txn = lake.transaction(lv.Feature.I | lv.Feature.CT)
    try:
        txn.take_turn(table)
    finally:
        txn.abort()


def connect(lake: lv.Lake, **given: Any) -> None:
    lv.connect(**given).close()


WHERE: dict[str, Any] = {"where": "id = :n", "params": {"n": 1}}
SELECT = "select * from t join v using (id) where id = :n"
Calls = dict[str, tuple[Callable[..., object], dict[str, Any]]]

CALLS: Calls = {
    "read": (undone("read"), {"table": "t", "columns": ["id"], **WHERE}),
    "scan": (undone("scan"), {"table": "t", "columns": ["id"], **WHERE}),
    "changes": (undone("changes"), {"table": "t", "since": 0, "columns": ["id"], **WHERE}),
    "sql": (undone("sql"), {"query": SELECT, "params": {"n": 1}, "views": {"v": ROWS}}),
    "sql insert": (
        undone("sql"),
        {"query": "insert into t from v", "params": None, "views": {"v": ROWS}},
    ),
    "sql update": (undone("sql"), {"query": "update t set s = :n", "params": {"n": "x"}}),
    "append": (undone("append"), {"table": "t", "data": ROWS, "schema_mode": "merge"}),
    "overwrite": (undone("overwrite"), {"table": "t", "data": ROWS.slice(0, 1), **WHERE}),
    "update": (undone("update"), {"table": "t", "assignments": {"s": "'x'"}, **WHERE}),
    "delete": (undone("delete"), {"table": "t", **WHERE}),
    "upsert": (undone("upsert"), {"table": "t", "data": ROWS, "keys": ["id"]}),
    "merge": (
        merge,
        {
            "table": "t",
            "source": ROWS,
            "on": "source.id = target.id and source.id = :n",
            "source_alias": "source",
            "target_alias": "target",
            "params": {"n": 1},
        },
    ),
    **{
        name: (clause(name), {"updates": {"s": "'x'"}, "predicate": "true"})
        for name in (
            "when_matched_update",
            "when_not_matched_insert",
            "when_not_matched_by_source_update",
        )
    },
    **{
        name: (clause(name), {"predicate": "true", "except_cols": ["id"]})
        for name in ("when_matched_update_all", "when_not_matched_insert_all")
    },
    **{
        name: (clause(name), {"predicate": "true"})
        for name in ("when_matched_delete", "when_not_matched_by_source_delete")
    },
    **{
        f"create_table {format}": (
            undone("create_table"),
            {
                "name": "new",
                "data_or_schema": ROWS,
                "format": format,
                "partition_by": ["s"],
                "properties": {"a": "b"},
            },
        )
        for format in ("delta", "iceberg")
    },
    **{
        f"alter {table} {name}": (undone("alter"), {"table": table, name: value})
        for table in ("t", "ice")
        for name, value in {
            "add_columns": ALL,
            "drop_columns": ["s"],
            "rename_columns": {"s": "z"},
            "drop_not_null": ["s"],
            "add_constraints": {"c": "id > 0"},
            "drop_constraints": ["c"],
            "set_properties": {"a": "b"},
            "unset_properties": ["a"],
        }.items()
    },
    "drop_table": (undone("drop_table"), {"name": "t"}),
    "take_turn": (take_turn, {"table": "t"}),
    "snapshot.read": (seen("read"), {"table": "t", "columns": ["id"], **WHERE}),
    "snapshot.scan": (seen("scan"), {"table": "t", "columns": ["id"], **WHERE}),
    "snapshot.sql": (seen("sql"), {"query": SELECT, "params": {"n": 1}, "views": {"v": ROWS}}),
    "snapshot.changes": (seen("changes"), {"table": "t", "since": 0, **WHERE}),
    "lake.transaction": (
        begin,
        {
            "features": lv.Feature.R | lv.Feature.I,
            "isolation": "serializable",
            "validation": "precise",
            "slack": 0,
            "durability": "lazy",
            "wait": "published",
            "idempotency_key": None,
            "read_only": True,
            "wait_timeout_seconds": 1,
            "metadata": {"a": "b"},
        },
    ),
    "lake.run": (of_lake("run"), {"fn": lambda txn: None, "attempts": 2, "metadata": None}),
    "lake.transactional": (of_lake("transactional"), {"attempts": 2, "slack": 0}),
    "lake.foreach_batch": (of_lake("foreach_batch"), {"fn": lambda t, b: None, "query_id": "q"}),
    "lake.drop_table": (of_lake("drop_table"), {"name": "nope", "delete_data": False}),
    "lake.register": (of_lake("register"), {"name": "r", "uri": "nope"}),
    "lake.unregister": (of_lake("unregister"), {"name": "nope"}),
    "lake.table": (of_lake("table"), {"name": "t"}),
    "lake.snapshot": (of_lake("snapshot"), {"version": 1, "timestamp": None}),
    "lake.snapshot at": (of_lake("snapshot"), {"timestamp": datetime(2030, 1, 1, tzinfo=UTC)}),
    "lake.history": (of_lake("history"), {"limit": 1}),
    "lake.outcome": (of_lake("outcome"), {"txn_id": TXN, "idempotency_key": None}),
    "lake.resume": (of_lake("resume"), {"txn_id": TXN}),
    "lake.abort": (of_lake("abort"), {"txn_id": "x"}),
    "lake.guard": (of_lake("guard"), {"table": "nope"}),
    "lake.unguard": (of_lake("unguard"), {"table": "nope"}),
    "lake.capabilities": (of_lake("capabilities"), {"table": "t"}),
    "lake.gc": (of_lake("gc"), {"dry_run": True}),
    "lake.doctor": (of_lake("doctor"), {"adopt": False}),
    "table.history": (of_table("history"), {"limit": 1}),
    "table.optimize": (
        of_table("optimize"),
        {"where": None, "target_file_size_bytes": None, "z_order_by": ()},
    ),
    "table.vacuum": (
        of_table("vacuum"),
        {"retention_hours": 200, "dry_run": True, "enforce_retention_duration": True},
    ),
    "connect": (
        connect,
        {
            "root": "memory://",
            "storage_options": {},
            "spark": None,
            "settings": None,
            "boto3_session": None,
            "conditional_writes": "require",
            "spark_reader": "auto",
            "on_event": None,
            "catalogs": {},
        },
    ),
}

#: Every n-th mistake is also tried nested in another argument, as each trial takes time.
_WITHIN = how_many(5, soak=1)

#: Valid arguments that are supposed to change the lake.
MEANT = {("lake.doctor", "adopt", True)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def lake(root: Path) -> Iterator[lv.Lake]:
    with lv.connect(str(root)) as lake:
        for name in ("t", "ice"):
            lake.create_table(name, ROWS, format="iceberg" if name == "ice" else "delta")
        yield lake


def state(root: Path) -> dict[str, tuple[int, int]]:
    """Return the objects in the store, with the times of their writes."""
    found = {}
    for directory, _, files in os.walk(root):
        for name in files:
            about = os.stat(path := os.path.join(directory, name))
            found[path] = about.st_size, about.st_mtime_ns
    return found


def told(value: object) -> str:
    try:
        return repr(value)[:60]
    except ValueError:
        return f"{type(value).__name__} with a huge number"


def raised(call: Callable[..., object], lake: lv.Lake, given: dict[str, Any]) -> Exception | None:
    try:
        call(lake, **given)
    except Exception as error:
        return error
    return None


def check(error: Exception, where: str) -> None:
    """Assert that an error is LakeVilla's, in lower case and of a readable length."""
    assert isinstance(error, lv.LakeVillaError), f"{where} raised {type(error).__name__}: {error}"
    first = error.message.split()[0]
    assert first == first.lower() or first.isupper(), f"{where}: {error.message}"
    assert len(error.message) < 2000, where


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_value_raises_an_error_that_names_the_argument_and_has_no_effect(
    lake: lv.Lake, root: Path, name: str
) -> None:
    call, given = CALLS[name]
    before = state(root)
    for argument in given:
        inner = [v for value in mistakes()[::_WITHIN] for v in within(argument, value)]
        values = [*mistakes(), *inner]
        for value in values:
            if value is True and (name, argument, True) in MEANT:
                continue
            error = raised(call, lake, {**given, argument: value})
            if error is not None and not (name == "lake.run" and value is int):
                check(error, f"{name}({argument}={told(value)})")
                assert state(root) == before, f"{name}({argument}={told(value)}) had an effect"
            before = state(root)


@pytest.mark.parametrize("name", CALLS)
def test_an_unknown_argument_is_refused(lake: lv.Lake, name: str) -> None:
    call, given = CALLS[name]
    with pytest.raises((TypeError, lv.InvalidOperation), match="misspelt"):
        call(lake, **given, misspelt=1)


@pytest.mark.parametrize("place", ["s3:/bucket/x", "S3:bucket", "gs:/b", "abfss:/c@a/x", "file:x"])
def test_half_a_uri_is_not_taken_for_a_local_directory(lake: lv.Lake, place: str) -> None:
    for act in (lv.connect, lake.table, lambda name: lake.create_table(name, ROWS)):
        with pytest.raises(lv.InvalidOperation, match="half a URI"):
            act(place)  # type: ignore[operator]


COMMANDS: dict[str, list[str]] = {
    "tables": [],
    "register": ["nope"],
    "sql": ["select * from t"],
    "log": [],
    "snapshot": [],
    "txns": [],
    "abort": [TXN],
    "guard": ["nope"],
    "unguard": ["nope"],
    "optimize": ["t"],
    "vacuum": ["t"],
    "doctor": [],
    "recover": [],
    "gc": ["--dry-run"],
}
WORDS = ["", "a\ud800", "-1", "a=b", "\0", "select ?"]


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_mistake_in_a_command_ends_without_a_traceback(
    lake: lv.Lake, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given = COMMANDS[name]
    for word in WORDS:
        for wrong in ([str(root), *given, word], [str(root), *given, "-o", word], [word, *given]):
            result = CliRunner().invoke(app, [name, *wrong])
            assert result.exit_code in (0, 1, 2), wrong
            assert result.exception is None or isinstance(result.exception, SystemExit), wrong
            assert "Traceback" not in result.stderr, wrong

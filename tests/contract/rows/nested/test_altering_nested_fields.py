"""Fields within structs, lists and maps are added, renamed, dropped and relaxed by dotted names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.contract.foreign_readers import FORMATS, Format, read_by_others
from tests.support.tables import contents

_A = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.string())])
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64()),
        pa.field("s", _A),
        pa.field("l", pa.list_(_A)),
        pa.field("m", pa.map_(pa.string(), _A)),
        pa.field("d", pa.struct([pa.field("l", pa.list_(pa.map_(pa.string(), _A)))])),
    ]
)
ONE = {"a": 1, "b": "x"}
ROWS = [
    {"k": 1, "s": ONE, "l": [ONE, None], "m": [("q", ONE)], "d": {"l": [[("q", ONE)]]}},
    {"k": 2, "s": None, "l": None, "m": None, "d": None},
]
#: A column within which there is the struct ``_A``, and the dotted name of that struct.
PLACES = {"s": "s", "l": "l.element", "m": "m.value", "d": "d.l.element.value"}


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


@pytest.fixture
def lake(tmp_path: Path, format: Format) -> Iterator[lv.Lake]:
    mapped = {"delta.columnMapping.mode": "name"} if format == "delta" else {}
    with lv.connect(tmp_path) as lake:
        rows = pa.Table.from_pylist(ROWS, SCHEMA)
        lake.create_table("t", rows, format=format, properties=mapped)
        yield lake


def alter(lake: lv.Lake, **wish: Any) -> None:
    lake.run(lambda txn: txn.alter("t", **wish))


def values(rows: pa.Table, column: str) -> list[Any]:
    """Return what the structs within a column hold, of the rows in order."""
    found: list[Any] = rows.sort_by("k")[column].to_pylist()
    return found


def seen(lake: lv.Lake, format: Format, column: str) -> list[Any]:
    """Return a column as a new client reads it; others read the same where they can.

    pyiceberg 0.12 reads a NULL list or map as empty once a field within has changed, and loses the
    values of renamed fields of maps within lists.
    """
    with lv.connect(lake.root) as fresh:
        rows = fresh.snapshot().read("t")
    others = read_by_others(lake.table("t").uri, format, is_mapped=True)
    if column != "s":
        others.pop("pyiceberg", None)
    for name, theirs in others.items():
        assert values(theirs.select(["k", column]), column) == values(rows, column), name
    return values(rows, column)


def within(column: str, *structs: dict[str, Any] | None) -> Any:
    """Return the value of a column, of the first row of ``ROWS``, with these structs in it."""
    first = structs[0]
    return {
        "s": first,
        "l": list(structs),
        "m": [("q", first)],
        "d": {"l": [[("q", first)]]},
    }[column]


@pytest.mark.parametrize("column", PLACES)
def test_a_field_is_added_within_and_is_null_in_older_rows(
    lake: lv.Lake, format: Format, column: str
) -> None:
    alter(lake, add_columns={f"{PLACES[column].upper()}.q": "bigint"})
    assert lake.table("t").schema.names == SCHEMA.names
    old = {**ONE, "q": None}
    new = within(column, {"a": 2, "b": "y", "q": 7})
    rows = pa.Table.from_pylist([{"k": 3, column: new}], lake.table("t").schema.remove_metadata())
    lake.run(lambda txn: txn.append("t", rows))
    more = [None] if column == "l" else []
    assert seen(lake, format, column) == [within(column, old, *more), None, new]
    # Rewritten rows keep all values.
    lake.run(lambda txn: txn.update("t", {"k": "k + 10"}, "k > 0"))
    assert seen(lake, format, column) == [within(column, old, *more), None, new]


@pytest.mark.parametrize("column", PLACES)
def test_a_field_within_is_renamed_dropped_and_made_again(
    lake: lv.Lake, format: Format, column: str
) -> None:
    alter(lake, rename_columns={f"{PLACES[column]}.a": "B", f"{PLACES[column]}.b": "A"})
    more = [None] if column == "l" else []
    assert seen(lake, format, column) == [within(column, {"B": 1, "A": "x"}, *more), None]
    alter(lake, drop_columns=[f"{PLACES[column]}.B"])
    alter(lake, add_columns={f"{PLACES[column]}.B": "bigint"})
    # Values of the column that was dropped do not come back.
    assert seen(lake, format, column) == [within(column, {"A": "x", "B": None}, *more), None]


@pytest.mark.parametrize("column", PLACES)
def test_a_struct_of_which_older_files_have_no_field_is_read(
    lake: lv.Lake, format: Format, column: str
) -> None:
    """A NULL struct stays NULL, and another one has NULL in its new field."""
    alter(lake, add_columns={f"{PLACES[column]}.q": "bigint"})
    alter(lake, drop_columns=[f"{PLACES[column]}.a", f"{PLACES[column]}.b"])
    more = [None] if column == "l" else []
    for _ in range(2):
        with lv.connect(lake.root) as fresh:
            found = values(fresh.read("t"), column)
        assert found == [within(column, {"q": None}, *more), None]
        lake.run(lambda txn: txn.update("t", {"k": "k + 10"}, "k > 0"))


@pytest.mark.parametrize("column", ["s", "l", "d"])
def test_not_null_is_dropped_within(tmp_path: Path, format: Format, column: str) -> None:
    a = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    element = pa.field("element", a, nullable=False)
    kinds = {"s": a, "l": pa.list_(element), "d": pa.struct([("l", pa.list_(element))])}
    path = {"s": "s", "l": "l.element", "d": "d.l.element"}[column]
    one = {"s": {"a": None}, "l": [{"a": None}], "d": {"l": [{"a": None}]}}[column]
    none = {"s": None, "l": [None], "d": {"l": [None]}}[column]
    schema = pa.schema([("k", pa.int64()), (column, kinds[column])])
    with lv.connect(tmp_path) as lake:
        lake.create_table("n", schema, format=format)

        def append(value: Any) -> None:
            lake.run(lambda txn: txn.append("n", pa.Table.from_pylist([{"k": 1, column: value}])))

        with pytest.raises(lv.LakeVillaError):
            append(one)
        lake.run(lambda txn: txn.alter("n", drop_not_null=[f"{path}.a"]))
        append(one)
        if column != "s":
            with pytest.raises(lv.LakeVillaError):
                append(none)
            lake.run(lambda txn: txn.alter("n", drop_not_null=[path]))
            append(none)
        assert len(lake.read("n")) == (1 if column == "s" else 2)


@pytest.mark.parametrize(
    ("wish", "match"),
    [
        ({"add_columns": {"m.key.q": "int"}}, "keys of a map can't change"),
        ({"add_columns": {"l.q": "int"}}, r"write l\.element\.<name>"),
        ({"add_columns": {"m.q": "int"}}, r"write m\.value\.<name>"),
        ({"add_columns": {"l.element.a": "int"}}, r"already has a column 'l\.element\.a'"),
        ({"add_columns": {"l.element.A": "int"}}, r"already has a column 'l\.element\.a'"),
        ({"add_columns": {"l.element.z.q": "int"}}, r"no struct, list or map 'l\.element\.z'"),
        ({"add_columns": {"l.element.a.q": "int"}}, r"no struct"),
        ({"add_columns": {"d.l.element.key.q": "int"}}, "keys of a map can't change"),
        ({"rename_columns": {"m.key": "z"}}, "within the keys of a map"),
        ({"rename_columns": {"l.element": "z"}}, "are no column"),
        ({"rename_columns": {"l.element.a": "B"}}, r"two columns 'l\.element\.[Bb]'"),
        ({"drop_columns": ["m.value"]}, "are no column"),
        ({"drop_columns": ["m.key"]}, "within the keys of a map"),
        ({"drop_columns": ["l.element.a", "l.element.b"]}, r"no field left in 'l\.element'"),
        ({"drop_columns": ["l.element.z"]}, r"no column 'l\.element\.z'"),
        ({"drop_not_null": ["m.key"]}, "within the keys of a map"),
        ({"set_comments": {"l.element": "text"}}, "are no column"),
    ],
)
def test_a_change_that_has_no_place_is_refused_and_nothing_is_written(
    lake: lv.Lake, wish: dict[str, Any], match: str
) -> None:
    table = Path(lake.table("t").uri.removeprefix("file://"))
    before = contents(table)
    with pytest.raises(lv.InvalidOperation, match=match):
        alter(lake, **wish)
    assert contents(table) == before


def test_a_type_within_a_list_is_widened_and_older_rows_are_read(
    tmp_path: Path, format: Format
) -> None:
    schema = pa.schema([("k", pa.int64()), ("l", pa.list_(pa.struct([("a", pa.int32())])))])
    widens = {"delta.enableTypeWidening": True} if format == "delta" else {}
    with lv.connect(tmp_path) as lake:
        rows = pa.Table.from_pylist([{"k": 1, "l": [{"a": 5}]}], schema)
        lake.create_table("w", rows, format=format, properties=widens)
        lake.run(lambda txn: txn.alter("w", change_types={"l.element.a": "bigint"}))
        lake.run(lambda txn: txn.append("w", [{"k": 2, "l": [{"a": 1 << 40}]}]))
        found = lake.read("w").sort_by("k")["l"].to_pylist()
        assert found == [[{"a": 5}], [{"a": 1 << 40}]]


def test_sql_adds_renames_and_drops_fields_within(lake: lv.Lake, format: Format) -> None:
    session = lake.session()
    session.sql(
        "ALTER TABLE t ADD COLUMN l.element.q INT COMMENT 'new', ADD COLUMN m.value.r STRING"
    )
    session.sql("ALTER TABLE t ADD COLUMNS (d.l.element.value.q INT)")
    session.sql("ALTER TABLE t RENAME COLUMN l.element.q TO p")
    session.sql("ALTER TABLE t DROP COLUMNS (l.element.a, m.value.a)")
    kinds = {one.name: str(one.type) for one in lake.table("t").schema}
    assert kinds["l"] == "list<element: struct<b: string, p: int32>>"
    assert kinds["m"] == "map<string, struct<b: string, r: string>>"
    assert "q: int32" in kinds["d"]


@pytest.mark.parametrize("verb", ["drop_columns", "rename_columns"])
def test_an_alter_of_a_field_within_a_list_never_means_another_field(
    lake: lv.Lake, verb: str
) -> None:
    """An alter names fields as they were: not those that another client has given the names."""
    wish: Any = ["l.element.a"] if verb == "drop_columns" else {"l.element.a": "mine"}
    with lv.connect(lake.root) as rival:
        txn = lake.transaction()
        txn.alter("t", **{verb: wish})
        rival.run(lambda other: other.alter("t", rename_columns={"l.element.a": "x"}))
        rival.run(lambda other: other.alter("t", rename_columns={"l.element.b": "a"}))
        with pytest.raises(lv.LakeVillaError, match=r"renamed|was dropped"):
            txn.commit()
    kind = lake.table("t").schema.field("l").type.value_type
    assert [(one.name, one.type) for one in kind] == [("x", pa.int64()), ("a", pa.string())]

"""All verbs can set single fields of structs, and accept structs with fewer or reordered fields."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.contract.foreign_readers import Format, read_by_others
from tests.support.tables import contents

PLACE = pa.struct([("a", pa.int64()), ("b", pa.string()), ("t", pa.struct([("u", pa.int32())]))])
PLACES = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))
SCHEMA = pa.schema([("k", pa.int64()), ("s", PLACE), ("l", PLACES)])
FIRST: list[dict[str, Any]] = [
    {"k": 1, "s": {"a": 1, "b": "x", "t": {"u": 5}}, "l": [{"a": 1, "b": "y"}]},
    {"k": 2, "s": None, "l": []},
]
MAPPED = {"delta.columnMapping.mode": "name"}
KINDS: dict[str, tuple[Format, dict[str, str]]] = {
    "delta": ("delta", {}),
    "mapped": ("delta", MAPPED),
    "iceberg": ("iceberg", {}),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def lake(tmp_path: Path, kind: str) -> Iterator[lv.Lake]:
    format, properties = KINDS[kind]
    with lv.connect(tmp_path) as lake:
        rows = pa.Table.from_pylist(FIRST, SCHEMA)
        lake.create_table("t", rows, format=format, properties=properties)
        yield lake


def rows(lake: lv.Lake, kind: str) -> list[dict[str, Any]]:
    """Return the rows sorted by key; foreign readers must see the same ones."""
    ours = lake.read("t").sort_by("k").to_pylist()
    for name, theirs in read_by_others(
        lake.table("t").uri, KINDS[kind][0], is_mapped=kind == "mapped"
    ).items():
        assert theirs.sort_by("k").to_pylist() == ours, name
    return ours


def test_an_update_of_a_field_keeps_the_other_fields_of_its_struct(
    lake: lv.Lake, kind: str
) -> None:
    with lake.transaction() as txn:
        done = txn.update("t", {"s.a": "s.a + k", "S.T.u": 7}, "s.b = 'x'")
        assert done.rows_updated == 1
        txn.sql("UPDATE t SET t.s.b = 'new', l = [{'b': 'z'}] WHERE k = 2")
    assert rows(lake, kind) == [
        {"k": 1, "s": {"a": 2, "b": "x", "t": {"u": 7}}, "l": [{"a": 1, "b": "y"}]},
        {"k": 2, "s": {"a": None, "b": "new", "t": None}, "l": [{"a": None, "b": "z"}]},
    ]
    # Files are chosen by the fields' statistics.
    assert lake.read("t", where="s.a = 2").num_rows == 1
    assert lake.read("t", where="s.b = 'new' and s.a is null").num_rows == 1


def test_mappings_can_be_values_and_parameters_of_an_update(lake: lv.Lake, kind: str) -> None:
    with lake.transaction() as txn:
        txn.update("t", {"s": {"B": "d"}, "l": [{"b": "e"}, None]}, "k = 1")
        txn.update("t", {"s.t": ":t"}, "k = 2", params={"t": {"u": 3}})
    assert rows(lake, kind) == [
        {"k": 1, "s": {"a": None, "b": "d", "t": None}, "l": [{"a": None, "b": "e"}, None]},
        {"k": 2, "s": {"a": None, "b": None, "t": {"u": 3}}, "l": []},
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t SET s.a = (SELECT max(k) + 1 FROM t) WHERE k = 1",
        "UPDATE t SET s.a = o.n FROM (SELECT 1 AS k, 3 AS n) AS o WHERE o.k = t.k",
        "UPDATE t AS o SET o.s.a = 3 WHERE k IN (SELECT min(k) FROM t)",
        "MERGE INTO t USING (SELECT 1 AS k, 3 AS n) AS o ON t.k = o.k "
        "WHEN MATCHED THEN UPDATE SET t.s.a = o.n",
        "MERGE INTO t USING (SELECT 1 AS k, {'a': 3} AS s) AS o ON t.k = o.k "
        "WHEN MATCHED THEN UPDATE SET *",
    ],
)
def test_statements_that_read_other_rows_can_set_fields(
    lake: lv.Lake, kind: str, statement: str
) -> None:
    lake.session().sql(statement)
    assert rows(lake, kind)[0]["s"] == {"a": 3, "b": "x", "t": {"u": 5}}
    assert rows(lake, kind)[1]["s"] is None


OTHERWISE = pa.table(
    {
        "K": [1, 2, 3],
        "S": pa.array(
            [{"T": {"U": 1}, "B": "p"}, {"T": None, "B": "q"}, {"T": None, "B": None}],
            pa.struct([("T", pa.struct([("U", pa.int64())])), ("B", pa.string())]),
        ),
        "L": pa.array([[{"B": "r"}], [None], []], pa.list_(pa.struct([("B", pa.string())]))),
    }
)
#: Fields of a struct that the new rows lack are kept; lists are replaced.
KEPT = [
    {"k": 1, "s": {"a": 1, "b": "p", "t": {"u": 1}}, "l": [{"a": None, "b": "r"}]},
    {"k": 2, "s": {"a": None, "b": "q", "t": None}, "l": [None]},
    {"k": 3, "s": {"a": None, "b": None, "t": None}, "l": []},
]


def by_merge(txn: lv.Transaction, source: pa.Table, **options: Any) -> None:
    merge = txn.merge("t", source, "target.k = source.k", **options)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def by_upsert(txn: lv.Transaction, source: pa.Table, **options: Any) -> None:
    txn.upsert("t", source, keys="k", **options)


WAYS = pytest.mark.parametrize("way", [by_merge, by_upsert])


@WAYS
def test_structs_are_matched_by_the_names_of_their_fields(
    lake: lv.Lake, kind: str, way: Any
) -> None:
    lake.run(lambda txn: way(txn, OTHERWISE))
    assert rows(lake, kind) == KEPT


def test_a_struct_set_as_a_whole_keeps_no_field_of_the_old_one(lake: lv.Lake, kind: str) -> None:
    with lake.transaction() as txn:
        merge = txn.merge("t", OTHERWISE, "target.k = source.k")
        merge.when_matched_update({"target.s": "source.s", "l": "source.l"}).execute()
    whole = {"a": None, "b": "p", "t": {"u": 1}}
    assert rows(lake, kind) == [{**KEPT[0], "s": whole}, KEPT[1]]


@WAYS
def test_a_redone_merge_keeps_a_field_that_was_added_meanwhile(
    lake: lv.Lake, kind: str, way: Any
) -> None:
    with lake.transaction() as txn:
        way(txn, OTHERWISE)
        with lake.transaction() as other:
            other.alter("t", add_columns={"s.c": "string"})
            other.update("t", {"s.c": "'late'"}, "k = 1")
    assert rows(lake, kind)[0]["s"] == {**KEPT[0]["s"], "c": "late"}


def test_a_redone_update_keeps_a_field_that_was_added_meanwhile(lake: lv.Lake, kind: str) -> None:
    with lake.transaction() as txn:
        txn.update("t", {"s.a": "s.a + 1"}, "k = 1")
        with lake.transaction() as other:
            other.alter("t", add_columns={"s.c": "string"})
            other.update("t", {"s.c": "'late'"}, "k = 1")
    assert rows(lake, kind)[0]["s"] == {"a": 2, "b": "x", "t": {"u": 5}, "c": "late"}


def test_two_updates_of_different_fields_of_a_row_both_commit(lake: lv.Lake, kind: str) -> None:
    with lake.transaction() as txn:
        txn.update("t", {"s.a": 8}, "k = 1")
        with lake.transaction() as other:
            other.update("t", {"s.b": "'other'"}, "k = 1")
    assert rows(lake, kind)[0]["s"] == {"a": 8, "b": "other", "t": {"u": 5}}


@pytest.mark.parametrize("kind", ["mapped"], indirect=True)
def test_a_redo_follows_a_renamed_field_and_conflicts_if_the_field_was_dropped(
    lake: lv.Lake, kind: str
) -> None:
    with lake.transaction() as txn:
        txn.update("t", {"s.a": "s.a + 1", "s.t.u": 9}, "k = 1")
        with lake.transaction() as other:
            other.alter("t", rename_columns={"s.a": "n", "s.b": "a"})
            other.update("t", {"s.a": "'b'"}, "k = 1")
    assert rows(lake, kind)[0]["s"] == {"n": 2, "a": "b", "t": {"u": 9}}
    with pytest.raises(lv.ConflictError, match=r"column s\.n of table t was dropped"):
        with lake.transaction() as txn:
            txn.update("t", {"s.n": 0}, "k = 1")
            with lake.transaction() as other:
                other.alter("t", drop_columns=["s.n"])


def test_not_null_fields_of_structs_are_checked(tmp_path: Path) -> None:
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
    with lv.connect(tmp_path) as lake:
        lake.create_table("t", pa.schema([("k", pa.int64()), ("s", inner)]))
        lake.run(lambda txn: txn.append("t", [{"k": 1, "s": {"a": 1}}, {"k": 2, "s": None}]))
        refused: list[Any] = [
            lambda txn: txn.update("t", {"s.a": None}, "k = 1"),
            lambda txn: txn.update("t", {"s": {"b": "x"}}, "k = 1"),
            lambda txn: txn.update("t", {"s.b": "'x'"}, "k = 2"),
            lambda txn: txn.upsert("t", [{"k": 3, "s": {"b": "x"}}], keys="k"),
        ]
        before = contents(tmp_path)
        for verb in refused:
            with pytest.raises(lv.InvalidOperation, match=r"s\.a.*(NOT NULL|not be null)"):
                lake.run(verb)
        assert contents(tmp_path) == before
        lake.run(lambda txn: txn.upsert("t", [{"k": 1, "s": {"b": "y"}}], keys="k"))
        assert lake.read("t", where="k = 1")["s"].to_pylist() == [{"a": 1, "b": "y"}]


def test_the_change_data_feed_shows_rows_before_and_after_an_update_of_a_field(
    tmp_path: Path,
) -> None:
    with lv.connect(tmp_path) as lake:
        properties = {"delta.enableChangeDataFeed": "true"}
        lake.create_table("t", pa.Table.from_pylist(FIRST, SCHEMA), properties=properties)
        since = lake.snapshot().version
        lake.run(lambda txn: txn.update("t", {"s.a": 4}, "k = 1"))
        with lake.transaction() as txn:
            found = txn.changes("t", since).to_pylist()
    by_kind = {row["_change_type"]: row["s"] for row in found}
    assert by_kind == {
        "update_preimage": FIRST[0]["s"],
        "update_postimage": {**FIRST[0]["s"], "a": 4},
    }


def test_an_update_of_a_field_that_matches_no_row_writes_nothing(
    lake: lv.Lake, tmp_path: Path
) -> None:
    before = contents(tmp_path / "t")
    done = lake.run(lambda txn: txn.update("t", {"s.a": 1}, "s.a = 99"))
    assert done.rows_updated == 0
    assert contents(tmp_path / "t") == before


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE t SET s.a = 1, s = NULL", "s is assigned as a whole, and s.a within it"),
        ("UPDATE t SET s.a = 1, t.s.a = 2", "s.a is assigned twice"),
        ("UPDATE t SET s.q = 1", "there is no column s.q"),
        ("UPDATE t SET l.a = 1", "l.a is no field of a struct, as l is array"),
        ("UPDATE t SET s = {'q': 1}", "column s has no field q; its fields are a, b, t"),
        ("UPDATE t SET other.k = 1", "there is no column other.k"),
        ("UPDATE t AS o SET t.k = 1", "there is no column t.k"),
        ("MERGE INTO t USING (SELECT 1 AS k) AS o ON t.k = o.k "
         "WHEN MATCHED THEN UPDATE SET o.k = 1", "there is no column o.k"),
        ("MERGE INTO t USING (SELECT 1 AS k, {'q': 1} AS s) AS o ON t.k = o.k "
         "WHEN MATCHED THEN UPDATE SET *", "column s has no field q"),
    ],
)  # fmt: skip
def test_invalid_assignments_to_fields_are_refused(
    lake: lv.Lake, statement: str, said: str
) -> None:
    with pytest.raises(lv.InvalidOperation) as caught:
        lake.session().sql(statement)
    assert said in str(caught.value)


def test_a_column_with_a_dot_in_its_name_must_be_quoted_if_it_is_ambiguous(tmp_path: Path) -> None:
    with lv.connect(tmp_path) as lake:
        schema = pa.schema([("k", pa.int64()), ("s.a", pa.int64()), ("s", PLACE)])
        lake.create_table("t", pa.Table.from_pylist([{"k": 1, "s.a": 1}], schema))
        session = lake.session()
        session.sql('UPDATE t SET "s.a" = 2, s.a = 3')
        with pytest.raises(
            lv.InvalidOperation, match=r"could be the column .* or a field within s"
        ):
            lake.run(lambda txn: txn.update("t", {"s.a": 4}, "true"))
        lake.run(lambda txn: txn.update("t", {"`s.a`": 4, '"s"."b"': "'x'"}, "true"))
        lake.run(lambda txn: txn.upsert("t", pa.table({"k": [1], "s.a": [5]}), keys="k"))
        assert lake.read("t").to_pylist() == [
            {"k": 1, "s.a": 5, "s": {"a": 3, "b": "x", "t": None}}
        ]


def test_executemany_can_set_fields(tmp_path: Path) -> None:
    import lakevilla.dbapi

    with lv.connect(tmp_path) as lake:
        lake.create_table("t", pa.Table.from_pylist(FIRST, SCHEMA))
    with lakevilla.dbapi.connect(str(tmp_path)) as connection:
        cursor = connection.cursor()
        sets = [{"k": 1, "a": 11, "b": "p"}, {"k": 2, "a": 12, "b": "q"}]
        cursor.executemany("UPDATE t SET s.a = :a, t.s.b = :b WHERE k = :k", sets)
        connection.commit()
        cursor.execute("SELECT s FROM t ORDER BY k")
        assert [row[0] for row in cursor.fetchall()] == [
            {"a": 11, "b": "p", "t": {"u": 5}},
            {"a": 12, "b": "q", "t": None},
        ]

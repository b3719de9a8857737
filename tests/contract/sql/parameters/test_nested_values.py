"""Structs, lists and maps are stored in columns, written in SQL or passed as parameters."""

from __future__ import annotations

from typing import Any

import pytest

import lakevilla as lv
import lakevilla.dbapi

TABLE = """
    CREATE TABLE t (
        n BIGINT, st STRUCT<a: INT, b: STRING>, m MAP<STRING, INT>,
        l ARRAY<STRUCT<a: INT, b: STRING>>)
"""


@pytest.fixture
def lake() -> Any:
    return lv.connect("memory://")


@pytest.fixture
def session(lake: Any) -> Any:
    session = lake.session()
    session.sql(TABLE)
    return session


def only_row(session: Any) -> dict[str, Any]:
    (row,) = session.sql("SELECT * FROM t").to_pylist()
    return row


@pytest.mark.parametrize(
    "values",
    [
        "{'a': 1, 'b': NULL}, MAP {'k': NULL}, [{'a': 1, 'b': NULL}, {'a': NULL, 'b': 'x'}]",
        "struct_pack(a := 1, b := NULL), {'k': NULL}, [{'b': NULL, 'a': 1}, {'b': 'x'}]",
    ],
)
def test_null_in_a_nested_value_fits_a_field_of_any_type(session: Any, values: str) -> None:
    session.sql(f"INSERT INTO t VALUES (1, {values})")
    row = only_row(session)
    assert row["st"] == {"a": 1, "b": None}
    assert row["m"] == [("k", None)]
    assert row["l"] == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


def test_an_empty_list_fits_a_list_column_of_any_type(session: Any) -> None:
    session.sql("INSERT INTO t (l, m) VALUES ([], MAP {})")
    assert only_row(session) == {"n": None, "st": None, "m": [], "l": []}


def test_mappings_as_parameters_are_stored_as_structs_and_maps(session: Any) -> None:
    values = {
        "st": {"a": 1, "b": None},
        "m": {"k": 1, "K": 2, "o'": None},
        "l": [{"a": 1, "b": "x"}, {"b": "y", "a": None}],
    }
    session.sql("INSERT INTO t VALUES (1, :st, :m, :l)", values)
    row = only_row(session)
    assert {**row, "m": dict(row["m"])} == {"n": 1, **values}
    assert session.sql("SELECT n FROM t WHERE st = :s", {"s": {"a": 1, "b": None}}).num_rows == 1


def test_a_transaction_with_mappings_is_redone(lake: Any, session: Any) -> None:
    session.sql("INSERT INTO t (n) VALUES (5)")
    session.sql("BEGIN")
    session.sql("INSERT INTO t (n, st) SELECT n + 1, :st FROM t", {"st": {"a": 2, "b": "x"}})
    with lake.transaction() as other:
        other.delete("t", where="true")
        other.sql("INSERT INTO t (n) VALUES (7)")
    session.sql("COMMIT")
    rows = session.sql("SELECT n, st FROM t ORDER BY n").to_pylist()
    assert rows == [{"n": 7, "st": None}, {"n": 8, "st": {"a": 2, "b": "x"}}]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("st", {"a": 1, "c": 2}, "has no field 'c'; its fields are a, b"),
        ("st", {"a": "x"}, "'st.a' of table 't' has type int32 and the data string"),
        ("m", {"k": "x"}, "'m.value' of table 't' has type int32 and the data string"),
        ("m", {"k": 1, "j": "x"}, "has type map<string, int32"),
        ("m", {1: 2}, "'m.key' of table 't' has type string and the data int32"),
    ],
)
def test_nested_values_that_do_not_fit_their_column_are_refused(
    session: Any, column: str, value: object, message: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match=message):
        session.sql(f"INSERT INTO t ({column}) VALUES (:v)", {"v": value})


def test_an_assignment_accepts_a_mapping(session: Any) -> None:
    session.sql("INSERT INTO t (n) VALUES (1)")
    given = {"s": {"b": "x"}, "m": {"k": 1, "K": 2}, "l": [{"a": 1}, None]}
    session.sql("UPDATE t SET st = :s, m = :m, l = :l WHERE n = 1", given)
    row = only_row(session)
    assert {**row, "m": dict(row["m"])} == {
        "n": 1,
        "st": {"a": None, "b": "x"},
        "m": {"k": 1, "K": 2},
        "l": [{"a": 1, "b": None}, None],
    }
    session.sql(
        "MERGE INTO t USING (SELECT 1 AS n) AS s ON t.n = s.n WHEN MATCHED THEN UPDATE SET st = :s",
        {"s": {"a": 4}},
    )
    assert only_row(session)["st"] == {"a": 4, "b": None}


def test_a_condition_of_a_delete_refuses_a_mapping(session: Any) -> None:
    with pytest.raises(lv.InvalidOperation, match="do not go together"):
        session.sql("DELETE FROM t WHERE st = :v", {"v": {"a": 1}})


def test_every_statement_that_writes_can_store_lists(session: Any) -> None:
    session.sql("CREATE TABLE u (id BIGINT, l ARRAY<BIGINT>, n ARRAY<ARRAY<STRING>>)")
    session.sql("INSERT INTO u VALUES (1, NULL, NULL)")
    session.sql("UPDATE u SET l = [id, 3, NULL], n = [['a'], []] WHERE [4, 1][2] = id")
    session.sql(
        "MERGE INTO u USING (SELECT 2 AS id) AS s ON u.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, l, n) VALUES (s.id, ARRAY[s.id], [])"
    )
    assert session.sql("FROM u ORDER BY id").to_pylist() == [
        {"id": 1, "l": [1, 3, None], "n": [["a"], []]},
        {"id": 2, "l": [2], "n": []},
    ]


def test_an_update_can_store_structs_and_maps(session: Any) -> None:
    session.sql("INSERT INTO t (n) VALUES (1)")
    session.sql("UPDATE t SET st = {'b': 'y', 'a': n + 1}, m = MAP {'k': n}")
    row = only_row(session)
    assert (row["st"], row["m"]) == ({"a": 2, "b": "y"}, [("k", 1)])
    session.sql("UPDATE t SET st = (SELECT {'a': n::INT, 'b': 'x'}), m = (SELECT MAP {'k': 2})")
    row = only_row(session)
    assert (row["st"], row["m"]) == ({"a": 1, "b": "x"}, [("k", 2)])


def test_executemany_with_mappings_and_lists_writes_few_files(lake: Any, session: Any) -> None:
    rows = [
        {
            "n": n,
            "st": {"a": n, "b": "x"} if n % 3 else None,
            "m": {"k": n},
            "l": [{"a": n, "b": "y"}] * (n % 2),
        }
        for n in range(60)
    ]
    with lakevilla.dbapi.connect(lake) as connection:
        cursor = connection.cursor()
        cursor.executemany("INSERT INTO t VALUES (:n, :st, :m, :l)", rows)
        assert cursor.rowcount == 60
    found = lake.sql("SELECT * FROM t ORDER BY n").to_pylist()
    assert [{**row, "m": dict(row["m"])} for row in found] == rows
    assert lake.sql("SELECT * FROM lakevilla_files").num_rows < 5

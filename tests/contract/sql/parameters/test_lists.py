"""A list as a parameter stands for its values, in every statement that accepts one."""

from __future__ import annotations

from typing import Any

import pytest

import lakevilla as lv
import lakevilla.dbapi

ROWS = "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (NULL, NULL)"


@pytest.fixture
def session() -> Any:
    session = lv.connect("memory://").session()
    session.sql(f"CREATE TABLE t (id BIGINT, s STRING); {ROWS}")
    return session


def ids(found: Any) -> set[int | None]:
    return {row["id"] for row in found.to_pylist()}


@pytest.mark.parametrize(
    ("where", "values", "wanted"),
    [
        ("id IN (:l)", [1, 2], {1, 2}),
        ("id IN :l", [1, 2], {1, 2}),
        ("id IN (:l)", (1, 2), {1, 2}),
        ("id IN (:l, 3)", [1], {1, 3}),
        ("id NOT IN (:l)", [1], {2, 3}),
        ("id NOT IN :l", [1, None], set()),
        ("id IN (:l)", [], set()),
        ("id NOT IN (:l)", [], {1, 2, 3, None}),
        ("NOT id IN :l AND s IS NULL", [], {None}),
        ("s IN (:l)", ["a", "c"], {1, 3}),
        ("id IN (:l) OR s IN (:l)", ["2"], None),
        ("id IN (SELECT id FROM t WHERE id IN (:l))", [3], {3}),
        ("id IN (:l) AND reverse(s) = 'b'", [1, 2], {2}),
    ],
)
def test_a_list_parameter_selects_the_same_rows_in_select_and_delete(
    session: Any, where: str, values: Any, wanted: set[int | None] | None
) -> None:
    query, change = f"SELECT id FROM t WHERE {where}", f"DELETE FROM t WHERE {where}"
    if wanted is None:
        with pytest.raises(lv.InvalidOperation):
            session.sql(change, {"l": values})
        return
    assert ids(session.sql(query, {"l": values})) == wanted
    session.sql(change, {"l": values})
    assert ids(session.sql("SELECT id FROM t")) == {1, 2, 3, None} - wanted


def test_a_list_parameter_can_be_used_outside_of_in_too(session: Any) -> None:
    text = "SELECT len(:l) AS n, id FROM t WHERE id IN (:l) AND id <> len(:l)"
    assert session.sql(text, {"l": [1, 2, 3]}).to_pylist() == [
        {"n": 3, "id": 1},
        {"n": 3, "id": 2},
    ]


def test_an_insert_of_a_query_with_a_list_is_redone(session: Any) -> None:
    session.sql("BEGIN")
    session.sql("INSERT INTO t SELECT id + 10, s FROM t WHERE id IN (:l)", {"l": [1, 2]})
    session.sql("COMMIT")
    assert ids(session.sql("SELECT id FROM t WHERE id > 10")) == {11, 12}


def test_a_cursor_accepts_lists_and_refuses_other_marks_of_parameters_with_a_hint() -> None:
    with lakevilla.dbapi.connect("memory://lists") as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE t (id BIGINT)")
        cursor.execute("INSERT INTO t VALUES (1), (2)")
        cursor.execute("SELECT id FROM t WHERE id IN (:ids)", {"ids": [2, 3]})
        assert cursor.fetchall() == [(2,)]
        for mark in ("?", "$1", "%s"):
            with pytest.raises(lakevilla.dbapi.ProgrammingError, match="write :n"):
                cursor.execute(f"SELECT id FROM t WHERE id = {mark}", [1])

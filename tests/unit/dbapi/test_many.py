"""Many sets of parameters: statements that take all of them in one run, and the stored values."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakevilla import dbapi
from lakevilla.dbapi.many import Run, many


def runs(operation: str, given: Any) -> list[Run]:
    return list(many(operation, given))


def rows_of(run: Run) -> list[dict[str, Any]]:
    assert run.views is not None
    (rows,) = run.views.values()
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


def test_an_insert_of_one_values_row_runs_once_for_all_sets() -> None:
    (run,) = runs(
        "INSERT INTO t (a, b) VALUES (:a, upper(:b) || ':b')",
        [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
    )
    assert run.text == (
        "INSERT INTO t (a, b) SELECT __parameters.__p0, upper(__parameters.__p1) || ':b' "
        "FROM __parameters"
    )
    assert run.params is None
    assert rows_of(run) == [{"__p0": 1, "__p1": "x"}, {"__p0": 2, "__p1": None}]


def test_parameter_names_may_differ_only_in_case_and_be_used_twice() -> None:
    (run,) = runs('INSERT INTO "s/t" VALUES (:a, :A, :a)', [{"a": 1, "A": "x"}])
    assert run.text.startswith('INSERT INTO "s/t" SELECT __parameters.__p0, __parameters.__p1,')
    assert rows_of(run) == [{"__p0": 1, "__p1": "x"}]


def test_a_parameter_that_is_none_in_all_sets_becomes_null() -> None:
    (run,) = runs("INSERT INTO t VALUES (:a, :b)", [{"a": None, "b": 1}, {"a": None, "b": 2}])
    assert run.text == "INSERT INTO t SELECT NULL, __parameters.__p1 FROM __parameters"
    (run,) = runs("INSERT INTO t VALUES (:a)", [{"a": None}, {"a": None}])
    assert run.text == "INSERT INTO t SELECT NULL FROM __parameters"
    assert len(rows_of(run)) == 2


@pytest.mark.parametrize(
    "operation",
    [
        "UPDATE t SET a = :a WHERE b = :b AND a > 1",
        "UPDATE t SET a = :a WHERE b = :b + 1",
        "UPDATE t SET a = [:a] WHERE b = :b",
        "UPDATE t SET a = :a FROM u WHERE b = :b",
        "UPDATE t SET a = 1 WHERE b = :b",  # its first run reports that :a is unused
        "DELETE FROM t WHERE a = :a OR b = :b",
        "DELETE FROM t WHERE a = :a AND b IN (SELECT :b)",
        "INSERT INTO t VALUES (:a, :b), (:b, :a)",
        "INSERT INTO t SELECT :a, :b",
        "INSERT INTO t VALUES (:a, (SELECT max(b) FROM t WHERE b > :b))",
        "INSERT INTO t VALUES ([:a, :b], 1)",
        "INSERT INTO t VALUES (:a, :c)",  # its first run reports the missing one
        "INSRET INTO t VALUES (:a, :b)",
        "INSERT INTO t VALUES (1, 2)",
    ],
)
def test_any_other_statement_runs_once_for_each_set(operation: str) -> None:
    sets = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert runs(operation, sets) == [Run(operation, one, None) for one in sets]


def test_parameter_sets_with_different_types_run_separately() -> None:
    sets = [{"a": 1}, {"a": "x"}, {"a": None}, {"a": 2}, {"a": 2.5}, {"a": True}]
    found = runs("INSERT INTO t VALUES (:a)", sets)
    assert [[row["__p0"] for row in rows_of(run)] for run in found] == [
        [1, None, 2],
        ["x"],
        [2.5],
        [True],
    ]


def test_parameter_values_pass_through_arrow_unchanged() -> None:
    noon = datetime(2026, 1, 31, 12)
    values = [7, 1.5, "x", b"\0", True, date(2026, 1, 31), noon, noon.replace(tzinfo=UTC)]
    values += [Decimal("1.50"), noon.time()]
    names = [f"v{place}" for place in range(len(values))]
    text = f"INSERT INTO t VALUES ({', '.join(f':{name}' for name in names)})"
    (run,) = runs(text, [dict(zip(names, values, strict=True))])
    assert list(rows_of(run)[0].values()) == values


def test_a_set_with_a_value_without_an_arrow_type_runs_alone() -> None:
    sets = [{"a": 2**70}, {"a": 1}]
    found = runs("INSERT INTO t VALUES (:a)", sets)
    assert found == [Run("INSERT INTO t VALUES (:a)", one, None) for one in sets]


@pytest.mark.parametrize("make", [pa.table, pa.record_batch])
def test_arrow_data_is_taken_as_sets_by_its_column_names(make: Any) -> None:
    (run,) = runs("INSERT INTO t VALUES (:b, :a)", make({"a": [1, 2], "b": ["x", None]}))
    assert run.text == "INSERT INTO t SELECT __parameters.__p1, __parameters.__p0 FROM __parameters"
    assert rows_of(run) == [{"__p0": 1, "__p1": "x"}, {"__p0": 2, "__p1": None}]
    (run,) = runs("DELETE FROM t WHERE a = :a", make({"a": [1, 2]}))
    rows = "(SELECT DISTINCT * FROM __parameters) AS __parameters"
    on = "a = __parameters.__p0"
    assert run.text == f'MERGE INTO t AS "t" USING {rows} ON {on} WHEN MATCHED THEN DELETE'
    assert run.instead == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    "keys", [(1, 1), (1, None), (1, "x"), (1.0, 2.0), (1, 2**53), (None, None)]
)
def test_updates_whose_keys_may_match_the_same_row_run_separately(
    keys: tuple[object, object],
) -> None:
    sets = [{"a": n, "b": key} for n, key in enumerate(keys)]
    text = "UPDATE t SET a = :a WHERE t.b = :b"
    assert runs(text, sets) == [Run(text, one, None) for one in sets]
    (run,) = runs(text, [{"a": None, "b": 1}, {"a": None, "b": 2}])
    assert run.text == (
        'MERGE INTO t AS "t" USING __parameters ON t.b = __parameters.__p1 '
        'WHEN MATCHED THEN UPDATE SET "a" = NULL'
    )
    assert rows_of(run) == [{"__p1": 1}, {"__p1": 2}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": 1}, "several sets"),
        ("abc", "several sets"),
        ([(1,)], "by name, not by position"),
        ([{"a": 1}, {"b": 1}], "set 2 of parameters lacks a and has b besides"),
        ([{"a": object()}], "parameter :a"),
    ],
)
def test_arguments_that_are_not_sets_of_parameters_are_refused(given: Any, message: str) -> None:
    with pytest.raises(dbapi.ProgrammingError, match=message):
        runs("INSERT INTO t VALUES (:a)", given)

"""No SQL statement reads or writes a table outside the lake."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv
import lakevilla.dbapi

#: ``{x}`` is a table outside the lake, ``{t}`` a table of the lake.
STATEMENTS = [
    'SELECT * FROM "{x}"',
    'FROM "{x}"',
    'TABLE "{x}"',
    'SELECT * FROM t WHERE a IN (SELECT n FROM "{x}")',
    'SELECT (SELECT max(n) FROM "{x}") FROM t',
    'WITH w AS (SELECT * FROM "{x}") SELECT * FROM w',
    'SELECT * FROM t JOIN "{x}" AS x ON x.n = t.a',
    'INSERT INTO "{x}" VALUES (9)',
    'INSERT INTO t SELECT n FROM "{x}"',
    'UPDATE "{x}" SET n = 9',
    'UPDATE t SET a = (SELECT max(n) FROM "{x}")',
    'UPDATE t SET a = n FROM "{x}" AS x WHERE x.n > t.a',
    'DELETE FROM "{x}" WHERE true',
    'DELETE FROM t WHERE a IN (SELECT n FROM "{x}")',
    'DELETE FROM t USING "{x}" AS x WHERE x.n > t.a',
    'MERGE INTO "{x}" AS x USING t ON x.n = t.a WHEN MATCHED THEN DELETE',
    'MERGE INTO t USING "{x}" AS x ON x.n = t.a WHEN NOT MATCHED THEN INSERT (a) VALUES (x.n)',
]
SCRIPTED = [
    'CREATE TABLE c AS SELECT * FROM "{x}"',
    'CREATE TABLE c LIKE "{x}"',
    'CREATE TABLE "{x}/made" (a BIGINT)',
    'CREATE TABLE IF NOT EXISTS "{x}" (a BIGINT)',
    'CREATE OR REPLACE TABLE "{x}" (a BIGINT)',
    'DROP TABLE "{x}"',
    'DROP TABLE IF EXISTS "{x}"',
    'ALTER TABLE "{x}" ADD COLUMN z BIGINT',
    'ALTER TABLE "{x}" RENAME TO y',
    'ALTER TABLE t RENAME TO "{x}/y"',
    'TRUNCATE TABLE "{x}"',
    "COMMENT ON TABLE \"{x}\" IS 'x'",
    'OPTIMIZE "{x}"',
    'VACUUM "{x}"',
    'VACUUM "{x}" DRY RUN',
    'DESCRIBE "{x}"',
    'DESCRIBE DETAIL "{x}"',
    'DESCRIBE HISTORY "{x}"',
    'SHOW COLUMNS FROM "{x}"',
    'SHOW VERSIONS FROM "{x}"',
    'EXPLAIN SELECT * FROM "{x}"',
    'EXPLAIN UPDATE "{x}" SET n = 1',
    'EXPLAIN UPDATE t SET a = (SELECT max(n) FROM "{x}")',
    'EXPLAIN MERGE INTO t USING "{x}" AS x ON x.n = t.a WHEN MATCHED THEN DELETE',
    'SELECT * FROM "{x}" VERSION AS OF 0',
    'SELECT * FROM "{x}" AT (VERSION => 1)',
    'BEGIN; SELECT * FROM "{x}"; COMMIT',
    'BEGIN ATOMIC INSERT INTO "{x}" VALUES (9); END',
]

Run = Callable[[lv.Lake, str], Any]


def by_transaction(lake: lv.Lake, text: str) -> Any:
    return lake.run(lambda txn: txn.sql(text))


def by_session(lake: lv.Lake, text: str) -> Any:
    with lake.session() as session:
        return session.sql(text)


def in_open_transaction(lake: lv.Lake, text: str) -> Any:
    with lake.session() as session:
        session.sql("BEGIN")
        return session.sql(text)


def by_dbapi(lake: lv.Lake, text: str) -> Any:
    with contextlib.closing(lakevilla.dbapi.connect(lake)) as connection:
        return connection.cursor().execute(text)


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    write_deltalake(str(tmp_path / "x"), pa.table({"n": pa.array([1, 2], pa.int64())}))
    return str(tmp_path / "x")


@pytest.fixture
def lake(tmp_path: Path) -> lv.Lake:
    lake = lv.connect(tmp_path / "lake")
    lake.create_table("t", [{"a": 1}])
    return lake


@pytest.mark.parametrize("prefix", ["", "file://"])
@pytest.mark.parametrize(
    ("run", "text"),
    [
        *[(run, text) for run in (by_transaction, by_session, by_dbapi) for text in STATEMENTS],
        *[(by_session, text) for text in SCRIPTED],
    ],
)
def test_no_statement_reaches_a_table_outside_the_root(
    lake: lv.Lake, elsewhere: str, run: Run, text: str, prefix: str
) -> None:
    with pytest.raises((lv.LakeVillaError, lakevilla.dbapi.Error)) as refused:
        run(lake, text.format(x=prefix + elsewhere))

    assert "path or a URI" in str(refused.value)
    there = DeltaTable(elsewhere)
    assert there.version() == 0
    assert not list(Path(elsewhere).glob("made"))
    assert lake.read("t").to_pylist() == [{"a": 1}]
    assert len(lake.tables()) == 1


@pytest.mark.parametrize("text", STATEMENTS)
def test_no_statement_in_a_sessions_transaction_reaches_a_table_outside_the_root(
    lake: lv.Lake, elsewhere: str, text: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match="SQL reads and writes only tables of the lake"):
        in_open_transaction(lake, text.format(x=elsewhere))


def test_the_error_for_a_table_outside_the_root_says_how_to_allow_it(
    lake: lv.Lake, elsewhere: str
) -> None:
    with pytest.raises(lv.InvalidOperation) as refused:
        lake.sql(f'SELECT * FROM "{elsewhere}"')

    assert f"lake.register('name', {elsewhere!r})" in str(refused.value)
    assert "Settings(sql_uris=True)" in str(refused.value)


def test_a_table_name_with_parent_steps_cannot_leave_the_root(
    lake: lv.Lake, elsewhere: str
) -> None:
    for name in ("../x", "t/../../x", "./../x", "%2e%2e/x", "a/%2E%2e/%2e%2e/x"):
        with pytest.raises(lv.LakeVillaError):
            lake.sql(f'SELECT * FROM "{name}"')


def test_a_registered_table_outside_the_root_is_reached_by_its_name_and_its_path(
    lake: lv.Lake, elsewhere: str
) -> None:
    lake.register("named", elsewhere)

    assert lake.sql("SELECT count(*) AS n FROM named").to_pylist() == [{"n": 2}]
    assert lake.sql(f'SELECT count(*) AS n FROM "{elsewhere}"').to_pylist() == [{"n": 2}]

    lake.unregister("named")
    with pytest.raises(lv.InvalidOperation, match="SQL reads and writes"):
        lake.sql(f'SELECT * FROM "{elsewhere}"')


def test_sql_may_name_a_table_below_the_root_by_its_full_path(lake: lv.Lake) -> None:
    assert lake.sql(f'SELECT a FROM "{lake.root}/t"').to_pylist() == [{"a": 1}]
    assert lake.sql(f'SELECT a FROM "file://{lake.root}/t"').to_pylist() == [{"a": 1}]


def test_a_view_may_have_a_path_as_its_name(lake: lv.Lake, elsewhere: str) -> None:
    rows = lake.sql(f'SELECT b FROM "{elsewhere}"', views={elsewhere: pa.table({"b": [7]})})

    assert rows.to_pylist() == [{"b": 7}]


def test_the_python_api_may_name_a_table_outside_the_root_by_its_path(
    lake: lv.Lake, elsewhere: str
) -> None:
    assert lake.read(elsewhere).num_rows == 2
    with lake.transaction() as txn:
        txn.append(elsewhere, [{"n": 3}])
        # SQL in this transaction may name the table, as the caller opened it in Python.
        assert txn.sql(f'SELECT n FROM "{elsewhere}"').num_rows == 3


def test_the_setting_sql_uris_lets_sql_name_tables_by_their_paths(
    tmp_path: Path, elsewhere: str
) -> None:
    lake = lv.connect(tmp_path / "lake", settings=lv.Settings(sql_uris=True))

    assert lake.sql(f'SELECT n FROM "{elsewhere}"').num_rows == 2
    with lake.session() as session:
        session.sql(f'CREATE TABLE "file://{tmp_path}/made" (a BIGINT)')
        assert session.sql(f'SELECT * FROM "{tmp_path}/made"').num_rows == 0


def test_sql_on_a_tag_or_a_branch_reaches_no_table_outside_the_root(
    lake: lv.Lake, elsewhere: str
) -> None:
    lake.tag("v1")
    lake.branch("etl")

    for ref in ("v1", "etl"):
        with pytest.raises(lv.InvalidOperation, match="SQL reads and writes"):
            lake.on(ref).sql(f'SELECT * FROM "{elsewhere}"')


def test_sql_on_a_lake_that_does_not_exist_yet_reaches_no_table_outside_the_root(
    tmp_path: Path, elsewhere: str
) -> None:
    lake = lv.connect(tmp_path / "new")

    for text in (f'SELECT * FROM "{elsewhere}"', f'CREATE TABLE "{tmp_path}/made" (a BIGINT)'):
        with pytest.raises(lv.InvalidOperation, match="SQL reads and writes"):
            lake.session().sql(text)
    assert not (tmp_path / "made").exists()
    assert not (tmp_path / "new").exists()

"""Users' SQL runs in one closed database per process, which can read only the given tables.

Most tests skip the first barrier, the parser, and run SQL on the connection itself, to test
the second barrier alone.
"""

from __future__ import annotations

import datetime
import gc
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakevilla as lv
from lakevilla.engines.base import TableInput
from lakevilla.engines.duckdb.file_system import GivenFiles
from lakevilla.engines.duckdb.reading import closed as closed_module
from lakevilla.engines.duckdb.reading.closed import ClosedSession, Parts
from lakevilla.engines.duckdb.reading.query import opened
from lakevilla.errors import InvalidOperation
from lakevilla.sql.statements.select import named_parameters, select_of
from tests.support.engine_lake import Lake
from tests.support.inside import inside


def shown(
    lake: Lake, sql: str, views: Mapping[str, pa.Table] | None = None
) -> AbstractContextManager[ClosedSession]:
    """Open the closed database with the tables that a statement names."""
    readers = {name: rows.to_reader() for name, rows in (views or {}).items()}
    select = select_of(sql)
    tables = {
        path: lake.runner.run(lake.engine._given.files(lake.input(path)))
        for path in select.tables - readers.keys()
    }
    text = named_parameters(sql)
    far = not lake.engine._database.is_local
    return opened(
        lake.engine._closed, text, select.references, tables, readers, plans_by_footers=not far
    )


def answer(lake: Lake, sql: str, **inputs: TableInput) -> list[dict[str, Any]]:
    tables = inputs or {path: lake.input(path) for path in select_of(sql).tables}
    return lake.runner.run(lake.engine.query(sql, tables, {}, {})).to_pylist()


@pytest.fixture(params=["local", "remote"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    lake = Lake(str(tmp_path / "lake"), remote=request.param == "remote")
    lake.make("customers", pa.table({"c": [1, 2], "name": ["Ann", "Bo"]}))
    lake.make("salaries", pa.table({"c": [1], "name": ["hunter2"]}))
    return lake


ATTACKS = [
    # files: of other tables, of this one by its path, of logs, of other lakes
    "SELECT * FROM read_parquet('{salary}')",
    "SELECT * FROM read_parquet('{own}')",
    "SELECT * FROM read_parquet('lakevilla://{salary_key}?size={salary_size}')",
    "SELECT * FROM read_parquet('lakevilla://{salary_key}')",
    "SELECT * FROM read_parquet('{salary_key}?size={salary_size}')",
    "SELECT * FROM read_parquet('lakevilla://*')",
    "SELECT * FROM read_parquet('lakevilla://**/*.parquet?size={salary_size}&as=*')",
    "SELECT * FROM read_blob('lakevilla://{salary_key}?size={salary_size}')",
    "SELECT * FROM read_text('{log}')",
    "SELECT * FROM read_json('{log}')",
    "SELECT * FROM read_text('lakevilla://{log_key}?size=100')",
    "SELECT * FROM read_text('{inside}')",
    "SELECT * FROM read_csv('{outside}')",
    "SELECT * FROM '{outside}'",
    "SELECT * FROM '{salary}'",
    "SELECT * FROM glob('{root}/**')",
    "SELECT * FROM glob('lakevilla://**')",
    "SELECT * FROM read_parquet('lakevilla://{root}/../outside/secret.csv?size=9')",
    "SELECT * FROM read_text('file://{outside}')",
    "SELECT * FROM read_text('/proc/self/environ')",
    "SELECT * FROM read_duckdb('{outside}')",
    # writing, also to a data file of the lake
    "COPY (SELECT 1) TO '{out}'",
    "COPY (SELECT 1 AS c) TO '{own}' (FORMAT parquet, USE_TMP_FILE false)",
    "COPY (SELECT 1 AS c) TO 'lakevilla://{own_key}?size={own_size}' (USE_TMP_FILE false)",
    "COPY (SELECT 1 AS c) TO 'lakevilla://x' (FORMAT csv)",
    "EXPORT DATABASE '{out}'",
    "ATTACH '{out}' AS x",
    "ATTACH 'lakevilla://x' AS x",
    # the network and extensions
    "SELECT * FROM 'https://example.com/x.parquet'",
    "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
    "INSTALL httpfs",
    "LOAD '{outside}'",
    "CREATE PERSISTENT SECRET s (TYPE s3)",
    # settings
    "SET enable_external_access = true",
    "SET allowed_directories = ['/']",
    "SET allowed_paths = ['{outside}']",
    "SET lock_configuration = false",
    "SET temp_directory = '{out}'",
    "SET SESSION profile_output = '{out}'",
    "RESET allowed_directories",
    "PRAGMA enable_profiling = 'json'; PRAGMA profiling_output = '{out}'",
    # names of Python
    "SELECT * FROM bait",
    "SELECT * FROM frame",
    "SELECT getenv('LAKEVILLA_SECRET')",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_sql_in_the_closed_database_can_not_read_other_data_nor_write(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    monkeypatch.setenv("LAKEVILLA_SECRET", "hunter2")
    bait = frame = pa.table({"password": ["hunter2"]})  # noqa: F841 (for replacement scans)
    root = Path(lake.root)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.csv").write_text("hunter2\n")
    (root / "_lakevilla").mkdir()
    (root / "_lakevilla" / "HEAD.json").write_text("hunter2")
    salary, own = (next((root / name).glob("*.parquet")) for name in ("salaries", "customers"))
    log = root / "salaries" / "_delta_log" / f"{0:020}.json"
    places = {
        "root": root, "salary": salary, "own": own, "log": log,
        "salary_key": salary.relative_to(root), "salary_size": salary.stat().st_size,
        "own_key": own.relative_to(root), "own_size": own.stat().st_size,
        "log_key": log.relative_to(root), "inside": root / "_lakevilla" / "HEAD.json",
        "outside": tmp_path / "outside" / "secret.csv", "out": tmp_path / "out",
    }  # fmt: skip
    answer(lake, "SELECT * FROM salaries")  # another statement has read the salaries
    before = contents(tmp_path)
    with shown(lake, "SELECT * FROM customers") as session:
        assert session.connection.execute("SELECT count(*) FROM customers").fetchall() == [(2,)]
        try:
            session.connection.execute(attack.format(**places))
            found = repr(session.connection.fetchall())
        except duckdb.Error as error:
            found = str(error)
    assert "hunter2" not in found
    assert contents(tmp_path) == before
    assert answer(lake, "SELECT max(name) AS n FROM customers") == [{"n": "Bo"}]


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "attack",
    [
        "FROM customers",
        "FROM salaries",
        "FROM temp.main.salaries",
        "FROM pay.salaries",
        "FROM {own}.pay.salaries",
        "FROM {own}.main.salaries",
        "FROM guests",
        "FROM temp.main.guests",
        "FROM {own}.list.guests",
        "FROM __lakevilla_stream",
    ],
)
def test_a_statement_sees_no_table_of_a_concurrent_statement(lake: Lake, attack: str) -> None:
    frame = pa.table({"name": ["hunter2"]})
    lake.make("pay/salaries", pa.table({"name": ["hunter2"]}))
    sql = "FROM customers, salaries, pay.salaries, guests, list.guests"
    frames = {"guests": frame, "list/guests": frame}
    with shown(lake, sql, frames) as session, shown(lake, "SELECT 1") as other:
        assert session.connection.execute(f"SELECT count(*) {sql}").fetchall() == [(2,)]
        ((own,),) = session.connection.execute("SELECT current_database()").fetchall()
        with pytest.raises(duckdb.Error):
            other.connection.execute(attack.format(own=own)).fetchall()
        assert "hunter2" not in repr(other.connection.execute("FROM duckdb_views()").fetchall())


def test_tables_of_a_statement_are_removed_after_it(lake: Lake) -> None:
    with shown(lake, "FROM guests, list.guests", {
        "guests": pa.table({"n": [1]}), "list/guests": pa.table({"n": [2]})
    }) as session:  # fmt: skip
        connection = session.connection
        assert connection.execute("FROM guests, list.guests").fetchall() == [(1, 2)]
    for name in ("guests", "list.guests"):
        with pytest.raises(duckdb.Error):
            connection.execute(f"FROM {name}").fetchall()
    assert connection.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]


def test_a_name_defined_by_with_does_not_mean_a_table_of_an_earlier_statement(lake: Lake) -> None:
    """Even if the two parsers disagree on a name's meaning, it never shows another's table."""
    assert len(answer(lake, "FROM salaries")) == 1
    with shown(lake, "WITH Salaries AS (SELECT 1 AS n) SELECT * FROM salaries") as session:
        views = session.connection.execute("SELECT view_name FROM duckdb_views() WHERE temporary")
        assert "salaries" not in repr(views.fetchall())
    assert len(answer(lake, "FROM salaries")) == 1


SHARED = [
    "SELECT count(*) FROM t",
    "FROM t SELECT a",
    "WITH x AS (SELECT * FROM t), y AS (FROM x) SELECT * FROM y JOIN s.u USING (a)",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) FROM r, t",
    "SELECT * FROM t WHERE a IN (SELECT a FROM t) OR EXISTS (FROM s.u)",
    "SELECT rank() OVER (ORDER BY a DESC NULLS LAST) FROM t QUALIFY true LIMIT 3 OFFSET 1",
    "SELECT a::DECIMAL(3, 1), [1, 2], {'k': a}, x -> x + 1 FROM t",
    "SELECT DISTINCT ON (a) a FROM t UNION BY NAME (FROM s.u EXCEPT FROM t) ORDER BY ALL",
    "SELECT * FROM range(3), unnest([1]), generate_series(1, 2), (VALUES (1)), t",
    "SELECT * FROM t PIVOT (sum(a) FOR b IN (1, 2))",
    "SELECT * FROM t POSITIONAL JOIN s.u ASOF JOIN t AS v ON t.a >= v.a",
    "SELECT * FROM t TABLESAMPLE 10%",
]
ALONE = [
    "PRAGMA database_list",
    "SET threads = 1",
    "COPY t TO 'x'",
    "CREATE VIEW v AS FROM t",
    "INSERT INTO t VALUES (1)",
    "EXPLAIN FROM t",
    "CALL pragma_version()",
    "FROM t; FROM t",
    "PIVOT t ON a USING count(*)",
    "FROM (DESCRIBE t)",
    "FROM (SUMMARIZE t)",
    "FROM (SHOW TABLES)",
    "FROM other",
    "FROM main.t",
    "FROM memory.main.t",
    "FROM temp.t",
    "FROM t AT (VERSION => 1)",
    "WITH x AS (FROM hidden) FROM x",
    "SELECT * FROM read_csv('t')",
    "SELECT (FROM glob('*'))",
    "FROM duckdb_settings()",
    "FROM enable_logging()",
    "FROM query('SELECT 1')",
    "FROM system.main.range(3)",
    "SELECT getenv('HOME') FROM t",
    "SELECT main.current_setting('x') FROM t",
    "SELECT a FROM t ORDER BY GETENV('HOME')",
    "SELECT list_transform([1], x -> write_log('x')) FROM t",
    "SELECT FROM WHERE",
    "'",
]


def test_only_a_plain_select_of_tables_shares_a_database(lake: Lake) -> None:
    references = frozenset({("t",), ("s", "u")})
    closed = lake.engine._closed

    def within(sql: str, references: frozenset[Parts] = references) -> frozenset[str] | None:
        return closed.admission_of(sql, references).within

    assert [sql for sql in SHARED if within(sql) is None] == []
    assert [sql for sql in ALONE if within(sql) is not None] == []
    assert within("WITH Xy AS (FROM t) FROM xy") == {"xy"}
    assert within("FROM a.b.c", frozenset({("a", "b", "c")})) is None


@pytest.mark.parametrize("name", ["prod.ns.customers", "main.customers"])
def test_a_name_that_needs_a_separate_database_gets_one(lake: Lake, name: str) -> None:
    kept = lake.engine._closed._open()
    path = name.replace(".", "/")
    rows = answer(lake, f"SELECT count(*) AS n FROM {name}", **{path: lake.input("customers")})
    assert rows == [{"n": 2}]
    assert kept._idle == []


def test_the_name_given_to_a_file_opens_only_that_file_and_only_while_referenced(
    lake: Lake,
) -> None:
    made = iter(range(10))
    files = GivenFiles(lake.engine._data, lambda: f"{next(made):032x}")
    key = str(next(Path(lake.root, "customers").glob("*.parquet")).relative_to(lake.root))
    size = os.path.getsize(f"{lake.root}/{key}")
    name = files.give(key, size, 1)
    assert files.give(key, size, 1) is name
    assert files.open(name).read(4) == b"PAR1"
    assert {files.give(key, size + 1, 1), files.give(key, size, 2)}.isdisjoint({name})
    text = str(name)
    del name
    gc.collect()
    assert not files.exists(text)
    with pytest.raises(PermissionError, match=key) as caught:
        files.open(text)
    assert "as=" not in str(caught.value)


def test_a_missing_file_is_reported_by_its_key(lake: Lake) -> None:
    path = next(Path(lake.root, "customers").glob("*.parquet"))
    table = lake.input("customers")
    path.unlink()
    with pytest.raises(lv.LakeVillaError, match=f"customers/{path.name}") as caught:
        answer(lake, "SELECT sum(c) FROM t", t=table)
    assert "as=" not in str(caught.value)


def test_a_file_that_was_overwritten_is_read_again(lake: Lake) -> None:
    """No client may overwrite a file; if one does and the log has a new size or time, caches
    don't return the old bytes.
    """
    table = lake.input("customers")
    path = next(Path(lake.root, "customers").glob("*.parquet"))
    assert answer(lake, "SELECT max(c) AS c FROM t", t=table) == [{"c": 2}]
    pq.write_table(pa.table({"c": [8, 9], "name": ["Ann", "Bo"]}), path)
    files = table.files
    for column, value in (("size", path.stat().st_size), ("modification_time", 1)):
        at = files.schema.get_field_index(column)
        files = files.set_column(at, files.schema.field(at), pa.array([value], pa.int64()))
    again = replace(table, files=files)
    assert answer(lake, "SELECT max(c) AS c FROM t", t=again) == [{"c": 9}]


def test_table_names_that_differ_only_by_case_are_distinguished(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    for name, n in (("Orders", 1), ("orders", 2), ("s/Orders", 3), ("S/orders", 4)):
        lake.make(name, pa.table({"n": [n]}))
    for _ in range(2):
        for name, n in (("Orders", 1), ("orders", 2), ("s.Orders", 3), ("S.orders", 4)):
            assert answer(lake, f"SELECT n FROM {name}") == [{"n": n}]
    with pytest.raises(InvalidOperation, match="differ only by case"):
        answer(lake, "SELECT * FROM Orders, orders")


def test_views_are_recreated_only_for_changed_tables(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    replaced = ClosedSession._replace

    def counted(session: ClosedSession, path: str, definition: str) -> None:
        made.append(path)
        replaced(session, path, definition)

    monkeypatch.setattr(ClosedSession, "_replace", counted)
    sql = "SELECT count(*) AS n FROM customers, salaries"
    tables = {name: lake.input(name) for name in ("customers", "salaries")}
    for _ in range(3):
        assert answer(lake, sql, **tables) == [{"n": 2}]
    assert sorted(made) == ["customers", "salaries"]
    lake.make("customers", pa.table({"c": [3], "name": ["Cy"]}), mode="append")
    tables["customers"] = lake.input("customers")
    for _ in range(2):
        assert answer(lake, sql, **tables) == [{"n": 3}]
    assert sorted(made) == ["customers", "customers", "salaries"]


def test_a_column_whose_type_has_changed_is_read_with_its_present_type(tmp_path: Path) -> None:
    lake = lv.connect(str(tmp_path))
    lake.create_table("a/t", {"n": [0]})
    for rows in ({"n": [1]}, {"n": ["x"]}, {"m": [1.5], "n": [2]}):
        with lake.transaction() as txn:
            txn.overwrite("a/t", rows, schema_mode="overwrite")
        for name in ("a.t", '"a/t"', "a.t"):
            assert pa.table(lake.sql(f"SELECT * FROM {name}")).to_pydict() == rows


def test_concurrent_statements_read_their_own_versions(tmp_path: Path) -> None:
    lake = lv.connect(str(tmp_path))
    lake.create_table("s/t", {"n": [0]})
    snapshots = []
    for number in range(4):
        with lake.transaction() as txn:
            txn.overwrite("s/t", {"n": [number] * (number + 1)})
        snapshots.append(lake.snapshot())
        assert "s/t" in snapshots[-1].versions  # binds the snapshot
    begin = threading.Barrier(4)

    def ask(number: int) -> set[tuple[int, int]]:
        begin.wait()
        found = set()
        for _ in range(20):
            rows = snapshots[number].sql("SELECT max(a.n) AS n, count(*) AS c FROM s.t AS a")
            found.add(tuple(pa.table(rows).to_pylist()[0].values()))
        return found

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [{(n, n + 1)} for n in range(4)]


def test_helper_tables_for_many_partitions_are_removed_after_the_statement(
    tmp_path: Path,
) -> None:
    lake = lv.connect(str(tmp_path))
    rows = {"p": list(range(80)), "n": list(range(80))}
    for name in ("a", "b"):
        lake.create_table(name, rows, partition_by=["p"])
    for least in (0, 10):
        with lake.transaction() as txn:
            txn.delete("a", f"n < {least}")
        for _ in range(2):
            found = lake.sql(
                "SELECT count(a.n) AS a, min(a.p) AS p, count(*) AS b FROM a RIGHT JOIN b USING (p)"
            )
            assert pa.table(found).to_pylist() == [{"a": 80 - least, "p": least, "b": 80}]
    (session,) = inside(lake).client._embedded._closed._open()._idle
    views = session.connection.execute(
        "SELECT view_name FROM duckdb_views() WHERE view_name LIKE '__lakevilla_table%'"
    )
    assert views.fetchall() == []


def test_a_generator_used_as_a_view_can_query_the_same_lake(tmp_path: Path) -> None:
    lake = lv.connect(str(tmp_path))
    lake.create_table("t", {"n": [1, 2, 3]})

    def rows() -> Iterator[dict[str, int]]:
        for row in pa.table(lake.sql("SELECT n FROM t")).to_pylist():
            yield {"n": row["n"] * 10}

    found = lake.sql("SELECT sum(t.n + v.n) AS n FROM t, v", views={"v": rows()})
    assert pa.table(found).to_pylist() == [{"n": 3 * 6 + 3 * 60}]


def test_a_forked_child_has_its_own_database(lake: Lake) -> None:
    assert answer(lake, "SELECT count(*) AS n FROM customers") == [{"n": 2}]
    parents = lake.engine._closed._kept
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, pickle.dumps(answer(lake, "SELECT count(*) AS n FROM customers")))
            assert lake.engine._closed._kept is not parents
        finally:
            os._exit(0)
    os.close(write)
    assert pickle.loads(os.read(read, 1000)) == [{"n": 2}]
    assert os.waitpid(child, 0)[1] == 0
    os.close(read)
    assert lake.engine._closed._kept is parents


def test_a_closed_lake_frees_its_database_and_its_snapshots_can_still_be_queried(
    tmp_path: Path,
) -> None:
    lake = lv.connect(str(tmp_path))
    lake.create_table("t", {"n": [1]})
    engine = inside(lake).client._embedded
    lake.sql("FROM t")
    snapshot = lake.snapshot()
    lake.close()
    assert engine._closed._kept is None
    assert not list(engine._given.names._names)
    assert pa.table(snapshot.sql("FROM t")).to_pydict() == {"n": [1]}


@pytest.mark.parametrize("error", [duckdb.FatalException, duckdb.InternalException])
def test_a_database_with_a_fatal_error_is_replaced(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    answer(lake, "FROM customers")
    kept = lake.engine._closed._kept

    def fail(session: ClosedSession, sql: str, params: object) -> None:
        raise error("no more")

    with monkeypatch.context() as patched:
        patched.setattr(ClosedSession, "run", fail)
        with pytest.raises(lv.LakeVillaError):
            answer(lake, "FROM customers")
    assert len(answer(lake, "FROM customers")) == 2
    assert lake.engine._closed._kept is not kept


def test_a_database_that_has_opened_many_files_is_replaced(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_module, "MOST_FILES", 3)
    kept = []
    for number in range(5):
        lake.make("customers", pa.table({"c": [number], "name": [""]}), mode="overwrite")
        assert answer(lake, "SELECT c FROM customers") == [{"c": number}]
        kept.append(lake.engine._closed._kept)
    assert kept[0] is kept[2]
    assert kept[0] is not kept[4]


def test_ctrl_c_ends_only_the_running_statement(lake: Lake) -> None:
    answer(lake, "FROM customers")
    kept = lake.engine._closed._kept
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            answer(
                lake, "SELECT max(hash(a.range, b.range)) FROM range(1000000) a, range(1000000) b"
            )
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 20
    assert len(answer(lake, "FROM customers")) == 2
    assert lake.engine._closed._kept is kept


def test_a_statement_that_exceeds_the_memory_limit_fails_alone(tmp_path: Path) -> None:
    lake = lv.connect(str(tmp_path), settings=lv.Settings(memory_limit_bytes=80 * 2**20))
    lake.create_table("t", {"n": list(range(1000))})
    with pytest.raises(InvalidOperation, match="memory_limit_bytes"):
        lake.sql("SELECT list(a.n + b.n) FROM t a, t b, range(40)")
    assert pa.table(lake.sql("SELECT count(*) AS n FROM t")).to_pydict() == {"n": [1000]}


def test_now_differs_between_two_statements(tmp_path: Path) -> None:
    lake = lv.connect(str(tmp_path))
    first, second = (pa.table(lake.sql("SELECT now() AS t"))["t"][0].as_py() for _ in range(2))
    assert second - first < datetime.timedelta(minutes=5)
    assert second > first


def test_a_statement_that_needs_more_memory_spills_to_disk(tmp_path: Path) -> None:
    lake = lv.connect(str(tmp_path), settings=lv.Settings(memory_limit_bytes=64 * 2**20))
    lake.create_table("t", {"n": list(range(1600))})
    found = lake.sql("""
        SELECT max(r) AS r FROM (
            SELECT row_number() OVER (ORDER BY hash(a.n, b.n), a.n, b.n) AS r FROM t a, t b
        )
    """)
    assert pa.table(found).to_pydict() == {"r": [2_560_000]}

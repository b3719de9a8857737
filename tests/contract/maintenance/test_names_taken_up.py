"""CREATE OR REPLACE TABLE of a name whose table was dropped: a new table at the same path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table import StaticTable

import lakevilla as lv
from lakevilla.api.session import Session

FORMATS = ["delta", "iceberg"]
AT_ONCE = lv.Settings(reuse_after_seconds=0)


@pytest.fixture(params=FORMATS)
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    """Return a session whose table has two versions and was dropped."""
    session = lv.connect(tmp_path).session()
    session.sql(f"CREATE TABLE t (id BIGINT, k STRING) USING {request.param} PARTITIONED BY (k)")
    session.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    session.sql("DROP TABLE t")
    return session


def rows(session: Session, text: str) -> list[dict[str, Any]]:
    found = session.sql(text)
    assert not isinstance(found, lv.OperationResult | lv.CommitResult | None)
    return found.to_pylist()


def tables(session: Session) -> list[str]:
    return [row["name"] for row in rows(session, "SHOW TABLES")]


def newest(tmp_path: Path, format: str) -> list[dict[str, Any]]:
    """Return the rows that a client without LakeVilla reads in the table's directory."""
    if format == "delta":
        return list(DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist())
    files = tmp_path.glob("t/metadata/v*.metadata.json")
    last = max(files, key=lambda path: int(path.name[1:].partition(".")[0]))
    return list(StaticTable.from_metadata(str(last)).scan().to_arrow().to_pylist())


def test_create_or_replace_of_a_dropped_name_keeps_the_old_versions(
    session: Session, tmp_path: Path
) -> None:
    session.sql("CREATE OR REPLACE TABLE t (day DATE, n INT)")
    assert tables(session) == ["t"]
    assert rows(session, "FROM t") == []
    assert [row["name"] for row in rows(session, "DESCRIBE t")] == ["day", "n"]
    session.sql("INSERT INTO t VALUES (NULL, 7)")
    format = rows(session, "SHOW TABLES")[0]["format"]
    assert newest(tmp_path, format) == [{"day": None, "n": 7}]
    assert rows(session, "FROM t VERSION AS OF 1 ORDER BY id") == [
        {"id": 1, "k": "a"},
        {"id": 2, "k": "b"},
    ]
    with lv.connect(tmp_path) as other:
        assert other.snapshot().read("t").to_pylist() == [{"day": None, "n": 7}]
        assert other.doctor().ok
        assert other.recover().ok


def test_a_plain_create_of_a_dropped_name_is_refused_with_both_alternatives(
    session: Session,
) -> None:
    for text in ("CREATE TABLE t (n INT)", "CREATE TABLE IF NOT EXISTS t (n INT)"):
        with pytest.raises(lv.TableExists) as raised:
            session.sql(text)
        assert "`register('t')` revives it" in raised.value.message
        assert "CREATE OR REPLACE TABLE" in raised.value.message
    assert tables(session) == []


def test_replacing_a_dropped_table_is_one_commit_that_a_rollback_undoes(session: Session) -> None:
    other = session._lake.session()
    session.sql("BEGIN; CREATE OR REPLACE TABLE t AS SELECT 5 AS y; INSERT INTO t VALUES (6)")
    assert tables(session) == ["t"]
    assert rows(session, "FROM t ORDER BY y") == [{"y": 5}, {"y": 6}]
    assert tables(other) == []
    with pytest.raises(lv.TableNotFound):
        other.sql("FROM t")
    session.sql("ROLLBACK")
    assert tables(session) == []
    before = session._lake.snapshot().version
    assert before is not None
    session.sql("BEGIN; CREATE OR REPLACE TABLE t AS SELECT 5 AS y; INSERT INTO t VALUES (6)")
    session.sql("COMMIT")
    assert session._lake.snapshot().version == before + 1
    assert rows(other, "FROM t ORDER BY y") == [{"y": 5}, {"y": 6}]


def test_a_failed_create_or_replace_leaves_the_table_dropped(session: Session) -> None:
    session.sql("BEGIN")
    for text, error in (
        ("CREATE OR REPLACE TABLE t (a INT) PARTITIONED BY (b)", lv.InvalidOperation),
        ("CREATE OR REPLACE TABLE t AS SELECT error('no row') AS a", lv.InvalidOperation),
        ("CREATE OR REPLACE TABLE t AS SELECT * FROM t", lv.TableNotFound),
    ):
        with pytest.raises(error):
            session.sql(text)
        assert tables(session) == []
    session.sql("CREATE TABLE u (a INT); COMMIT")
    assert tables(session) == ["u"]


def test_a_name_can_be_dropped_and_replaced_again_and_again(session: Session) -> None:
    for number in range(3):
        session.sql(f"CREATE OR REPLACE TABLE t AS SELECT {number} AS n")
        assert rows(session, "FROM t") == [{"n": number}]
        session.sql("DROP TABLE IF EXISTS t")
    session.sql("BEGIN; CREATE OR REPLACE TABLE t AS SELECT 8 AS n; DROP TABLE t; COMMIT")
    assert tables(session) == []
    session.sql("BEGIN; CREATE OR REPLACE TABLE t AS SELECT 8 AS n; DROP TABLE t")
    session.sql("CREATE TABLE t AS SELECT 9 AS n; COMMIT")
    assert rows(session, "FROM t") == [{"n": 9}]
    session.sql("DROP TABLE t")
    session._lake.register("t")
    assert rows(session, "FROM t") == [{"n": 9}]


def test_versions_of_the_lake_show_a_table_before_during_and_after_its_absence(
    session: Session,
) -> None:
    lake = session._lake
    dropped = lake.snapshot().version
    session.sql("CREATE OR REPLACE TABLE t AS SELECT 5 AS y")
    session.sql("INSERT INTO t VALUES (6)")
    assert dropped is not None
    assert lake.snapshot(dropped - 1).read("t").num_rows == 2
    with pytest.raises(lv.TableNotFound):
        lake.snapshot(dropped).read("t")
    assert lake.snapshot(dropped + 1).read("t").to_pylist() == [{"y": 5}]
    assert lake.snapshot(dropped + 2).read("t").num_rows == 2


def test_create_or_replace_after_foreign_writes_to_a_dropped_table_makes_one_version(
    tmp_path: Path,
) -> None:
    session = lv.connect(tmp_path).session()
    session.sql("CREATE TABLE t (id BIGINT); INSERT INTO t VALUES (1)")
    session.sql("DROP TABLE t")
    write_deltalake(tmp_path / "t", pa.table({"id": pa.array([9], pa.int64())}), mode="append")
    before = session._lake.snapshot().version
    session.sql("CREATE OR REPLACE TABLE t (id BIGINT)")
    assert rows(session, "FROM t") == []
    assert newest(tmp_path, "delta") == []
    assert before is not None
    assert session._lake.snapshot().version == before + 1
    assert session._lake.doctor().ok


def test_create_or_replace_is_refused_for_a_while_if_the_data_was_deleted(tmp_path: Path) -> None:
    lake = lv.connect(tmp_path)
    session = lake.session()
    session.sql("CREATE TABLE t (id BIGINT)")
    lake.drop_table("t", delete_data=True)
    with pytest.raises(lv.TableExists, match="can be used again"):
        session.sql("CREATE OR REPLACE TABLE t (n INT)")
    lv.connect(tmp_path, settings=AT_ONCE).session().sql("CREATE OR REPLACE TABLE t (n INT)")
    assert tables(session) == ["t"]


def test_create_or_replace_of_a_table_that_another_lake_has_registered_is_refused(
    tmp_path: Path,
) -> None:
    lake = lv.connect(tmp_path / "a")
    lake.session().sql("CREATE TABLE t (id BIGINT); INSERT INTO t VALUES (1)")
    lake.unregister("t")
    lake.session().sql("CREATE OR REPLACE TABLE t (n INT)")
    lake.unregister("t")
    other = lv.connect(tmp_path / "b")
    other.register("theirs", tmp_path / "a" / "t")
    with pytest.raises(lv.InvalidOperation, match="belongs to the lake at"):
        lake.session().sql("CREATE OR REPLACE TABLE t (n INT)")
    assert other.snapshot().read("theirs").schema.names == ["n"]


def test_create_or_replace_reuses_a_dropped_table_only_by_its_last_name(tmp_path: Path) -> None:
    lake = lv.connect(tmp_path)
    session = lake.session()
    session.sql("CREATE TABLE t (id BIGINT)")
    lake.rename_table("t", "called")
    session.sql("DROP TABLE called")
    with pytest.raises(lv.TableExists):
        session.sql("CREATE OR REPLACE TABLE t (n INT)")
    session.sql("CREATE OR REPLACE TABLE called (n INT)")
    assert tables(session) == ["called"]
    assert rows(session, "FROM called") == []


def test_a_branch_can_recreate_a_dropped_table_only_in_the_transaction_that_drops_it(
    session: Session,
) -> None:
    session.sql("CREATE OR REPLACE TABLE t AS SELECT 5 AS y")
    session._lake.branch("work")
    branch = session._lake.on("work").session()
    branch.sql("DROP TABLE t")
    for word in ("", "OR REPLACE "):
        with pytest.raises(lv.TableExists, match="on this branch"):
            branch.sql(f"CREATE {word}TABLE t (n INT)")
    session.sql("DROP TABLE t; CREATE OR REPLACE TABLE t AS SELECT 6 AS y")
    assert rows(session, "FROM t") == [{"y": 6}]


def test_tags_show_the_table_as_before_its_replacement(session: Session) -> None:
    lake = session._lake
    session.sql("CREATE OR REPLACE TABLE t AS SELECT 5 AS y")
    lake.tag("with")
    session.sql("DROP TABLE t")
    lake.tag("without")
    session.sql("CREATE OR REPLACE TABLE t AS SELECT 6 AS z")
    session.sql("OPTIMIZE t")
    session.sql("VACUUM t")
    assert lake.on("with").read("t").to_pylist() == [{"y": 5}]
    with pytest.raises(lv.TableNotFound):
        lake.on("without").read("t")
    assert rows(session, "FROM t") == [{"z": 6}]


def test_create_or_replace_of_a_dropped_name_keeps_the_format(session: Session) -> None:
    session._lake.register("t")
    format = rows(session, "SHOW TABLES")[0]["format"]
    session.sql("DROP TABLE t")
    (other,) = {"delta", "iceberg"} - {format}
    with pytest.raises(lv.InvalidOperation, match=f"is a table of {format}, and keeps its format"):
        session.sql(f"CREATE OR REPLACE TABLE t (a INT) USING {other}")
    assert tables(session) == []
    session.sql(f"CREATE OR REPLACE TABLE t (a INT) USING {format}")
    assert tables(session) == ["t"]


def test_a_saved_replacement_of_a_dropped_table_is_resumed_by_another_client(
    session: Session,
) -> None:
    lake = session._lake
    session.sql("BEGIN; CREATE OR REPLACE TABLE t AS SELECT 5 AS y")
    txn = session.transaction
    assert txn is not None
    txn.save()
    with lv.connect(lake.root) as other:
        resumed = other.resume(txn.id)
        assert resumed.sql("FROM t").to_pylist() == [{"y": 5}]  # type: ignore[union-attr]
        resumed.sql("INSERT INTO t VALUES (6)")
        resumed.commit()
    assert rows(lake.session(), "FROM t ORDER BY y") == [{"y": 5}, {"y": 6}]


def test_replacement_of_a_dropped_table_survives_revert_and_is_undone_by_rollback(
    session: Session,
) -> None:
    lake = session._lake
    dropped = lake.snapshot().version
    assert dropped is not None
    session.sql("CREATE OR REPLACE TABLE t AS SELECT 5 AS y")
    lake.revert(dropped + 1)  # a revert leaves a table that joined with earlier versions
    assert rows(session, "FROM t") == [{"y": 5}]
    lake.rollback(dropped - 1)
    assert rows(session, "FROM t ORDER BY id") == [{"id": 1, "k": "a"}, {"id": 2, "k": "b"}]


def test_reads_of_a_table_before_its_replacement_conflict(session: Session) -> None:
    session._lake.register("t")
    other = session._lake.session()
    other.sql("BEGIN; SELECT count(*) AS n FROM t; CREATE TABLE found (n INT)")
    session.sql("DROP TABLE t; CREATE TABLE u (n INT)")
    session.sql("CREATE OR REPLACE TABLE t (id BIGINT, k STRING)")
    with pytest.raises(lv.ConflictError):
        other.sql("COMMIT")
    assert tables(session) == ["t", "u"]


def test_the_change_feed_of_a_replaced_table_has_only_the_new_rows(session: Session) -> None:
    lake = session._lake
    dropped = lake.snapshot().version
    assert dropped is not None
    session.sql("CREATE OR REPLACE TABLE t AS SELECT 5 AS y")
    (version,) = lake.changes(since=dropped)
    assert (version.entered, version.left) == (("t",), ())
    found = version.tables["t"].to_pylist()
    assert [(row["_change_type"], row["y"]) for row in found] == [("insert", 5)]
    (net,) = lake.changes(since=dropped - 1, net=True)
    assert [row["y"] for row in net.tables["t"].to_pylist() if row["y"] is not None] == [5]


def test_create_table_in_python_behaves_as_the_sql_statement(session: Session) -> None:
    lake = session._lake
    with pytest.raises(lv.TableExists):
        lake.create_table("t", {"n": "int"}, exist_ok=True)
    with pytest.raises(lv.InvalidOperation, match="not both"):
        lake.create_table("t", {"n": "int"}, exist_ok=True, or_replace=True)
    made = lake.create_table("t", [{"n": 1}], or_replace=True, properties={"team": "us"})
    assert made.read().to_pylist() == [{"n": 1}]
    assert made.read(version=1).num_rows == 2
    made = lake.create_table("t", {"day": "date", "n": "int"}, or_replace=True, partition_by="day")
    assert made.read().num_rows == 0  # replaces an existing table, too
    assert made.read(version=2).to_pylist() == [{"n": 1}]
    assert lake.create_table("new", [{"n": 1}], or_replace=True).read().num_rows == 1
    with lake.transaction() as txn:
        txn.append("new", [{"n": 2}])
        txn.drop_table("new")
        with pytest.raises(lv.TableExists, match="dropped by this transaction"):
            txn.create_table("new", {"m": "int"})
        txn.create_table("new", [{"m": 3}], or_replace=True)
        with pytest.raises(lv.InvalidOperation, match="keeps its format"):
            txn.create_table("new", [{"m": 3}], format="iceberg", or_replace=True)
        txn.append("new", [{"m": 4}])
    assert sorted(lake.read("new")["m"].to_pylist()) == [3, 4]
    assert lake.doctor().ok

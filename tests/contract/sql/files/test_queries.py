"""A SELECT opens only files that the log's statistics do not exclude."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakevilla as lv
from lakevilla.api.session import Session


@pytest.fixture(params=["delta", "iceberg"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the root of a lake with two tables of ten files with ten rows each."""
    lake = lv.connect(tmp_path)
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    renaming = {"delta.columnMapping.mode": "name"} if request.param == "delta" else None
    for table in ("t", "u"):
        lake.create_table(table, schema, format=request.param, properties=renaming)
    with lake.transaction() as txn:
        for first in range(0, 100, 10):
            rows = [{"id": n, "s": f"{n:02}"} for n in range(first, first + 10)]
            txn.append("t", pa.Table.from_pylist(rows, schema))
            txn.append("u", pa.Table.from_pylist(rows, schema))
    lake.close()
    return tmp_path


def lose(root: Path, table: str, kept: int) -> None:
    """Delete all files of a table except the one with the row ``kept``."""
    files = list((root / table).rglob("*.parquet"))
    lost = [path for path in files if kept not in pq.read_table(path).column(0).to_pylist()]
    assert (len(files), len(lost)) == (10, 9)
    for path in lost:
        path.unlink()


@pytest.fixture
def session(root: Path) -> Session:
    lose(root, "t", 42)
    return lv.connect(root).session()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT s FROM t WHERE id = 42",
        "SELECT s FROM t AS x WHERE x.id = :k AND reverse(s) = '24'",
        "SELECT max(s) AS s FROM t WHERE id BETWEEN 42 AND 43 AND s < '43' GROUP BY s > 'x'",
        "SELECT t.s FROM t JOIN u USING (id) WHERE t.id = 42",
        "SELECT t.s FROM t, u WHERE t.s = '42' AND u.id = t.id",
        "SELECT t.s FROM t LEFT JOIN u ON t.id = u.id AND u.id < 10 WHERE t.s = '42'",
    ],
)
def test_a_query_does_not_open_files_that_its_condition_excludes(
    session: Session, text: str
) -> None:
    found = session.sql(text, {"k": 42} if ":k" in text else None)
    assert found.to_pylist() == [{"s": "42"}]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(s) FROM t",
        "SELECT count(s) FROM u LEFT JOIN t USING (id) WHERE t.s = '42'",
        "SELECT s FROM t WHERE id = 42 AND id < (SELECT max(id) FROM t)",
        "SELECT * FROM t JOIN t AS x USING (id) WHERE t.id = 42",
    ],
)
def test_a_query_opens_files_that_its_condition_does_not_exclude(
    session: Session, text: str
) -> None:
    with pytest.raises(lv.LakeVillaError, match="t"):
        session.sql(text)


def test_a_query_finds_rows_that_its_transaction_has_written(session: Session) -> None:
    session.sql("BEGIN; INSERT INTO t VALUES (200, 'own'), (42, 'too')")
    found = session.sql("SELECT s FROM t WHERE id IN (200, 42) ORDER BY s")
    assert found["s"].to_pylist() == ["42", "own", "too"]  # type: ignore[index]
    session.sql("ALTER TABLE t RENAME COLUMN id TO number; ALTER TABLE t ADD COLUMN id BIGINT")
    found = session.sql("SELECT s FROM t WHERE number IN (200, 42) AND id IS NULL ORDER BY s")
    assert found["s"].to_pylist() == ["42", "own", "too"]  # type: ignore[index]


def test_a_query_with_a_condition_counts_as_a_read_of_the_whole_table(root: Path) -> None:
    one, other = lv.connect(root), lv.connect(root)
    with pytest.raises(lv.ConflictError), one.transaction(isolation="serializable") as txn:
        assert txn.sql("SELECT s FROM t WHERE id = 42").num_rows == 1
        other.session().sql("INSERT INTO t VALUES (500, 'new')")
        txn.sql("INSERT INTO u VALUES (500, 'new')")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT s FROM t VERSION AS OF 1 WHERE id = 42",
        "SELECT old.s FROM t AT (VERSION => 3) AS old WHERE id = 42",
        "SELECT old.s FROM u JOIN t VERSION AS OF 1 AS old USING (id) WHERE old.s = '42'",
        "SELECT t.s FROM t JOIN u VERSION AS OF 1 AS old ON t.id = old.id WHERE t.id = 42",
    ],
)
def test_a_query_of_a_past_version_does_not_open_files_that_its_condition_excludes(
    session: Session, text: str
) -> None:
    found = session.sql(text)
    assert found.to_pylist() == [{"s": "42"}]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO u SELECT id + 1000, s FROM t WHERE id = 42",
        "INSERT INTO u BY NAME SELECT s, id + 1000 AS id FROM t AS x WHERE x.id = 42",
        "INSERT INTO u (s, id) SELECT t.s, t.id + 1000 FROM t JOIN u USING (id) WHERE t.s = '42'",
        "MERGE INTO u USING (SELECT id + 1000 AS id, s FROM t WHERE id = 42) AS q ON u.id = q.id "
        "WHEN NOT MATCHED THEN INSERT *",
        "CREATE TABLE c AS SELECT id + 1000 AS id, s FROM t WHERE id = 42; INSERT INTO u FROM c",
        "BEGIN; INSERT INTO u SELECT id + 1000, s FROM t WHERE id = 42; COMMIT",
    ],
)
def test_the_query_of_a_write_does_not_open_files_that_its_condition_excludes(
    session: Session, text: str
) -> None:
    session.sql(text)
    found = session.sql("SELECT s FROM u WHERE id = 1042")
    assert found.to_pylist() == [{"s": "42"}]  # type: ignore[union-attr]


def test_a_redo_chooses_the_files_of_its_query_again(root: Path) -> None:
    one, other = lv.connect(root), lv.connect(root)
    with one.transaction() as txn:
        txn.sql("INSERT INTO u SELECT id + 1000, s FROM t WHERE id >= 95 AND s <> '97'")
        with other.transaction() as theirs:
            theirs.sql("INSERT INTO t VALUES (97, 'new'), (3, 'old')")
            theirs.sql("DELETE FROM t WHERE id = 96")
    found = one.session().sql("SELECT id FROM u WHERE id >= 1000 ORDER BY id")
    assert found["id"].to_pylist() == [1095, 1097, 1098, 1099]  # type: ignore[index]

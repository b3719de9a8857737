"""IS DISTINCT FROM and IS NOT TRUE can be true for NULL, so files with only NULL are read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.api.session import Session

_ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "x": pa.array([None, None, 5, None], pa.int64()),
        "b": pa.array([None, None, True, None]),
    }
)


@pytest.fixture(params=["delta", "iceberg"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    """Return a session of a lake with a file of NULLs alone, and one with 5 and NULL."""
    lake = lv.connect(tmp_path)
    lake.create_table("t", _ROWS.schema, format=request.param)
    with lake.transaction() as txn:
        txn.append("t", _ROWS.slice(0, 2))
        txn.append("t", _ROWS.slice(2))
    return lake.session()


CONDITIONS = {
    "x IS DISTINCT FROM 1 OR x = 2": [1, 2, 3, 4],
    "x IS DISTINCT FROM 5 OR x > 7": [1, 2, 4],
    "NOT (x IS NOT DISTINCT FROM 5) OR x > 7": [1, 2, 4],
    "x IS DISTINCT FROM :five OR x IS DISTINCT FROM :five": [1, 2, 4],
    "b IS NOT TRUE OR b = false": [1, 2, 4],
    "id > 1 AND (b IS NOT TRUE OR b IS NOT FALSE)": [2, 3, 4],
}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("source", ["t", "v", "t VERSION AS OF 1"])
def test_predicates_that_are_true_for_null_find_rows_in_files_of_nulls(
    session: Session, condition: str, source: str
) -> None:
    views = {"v": _ROWS} if source == "v" else None
    params = {"five": 5} if ":five" in condition else None
    text = f"SELECT id FROM {source} WHERE {condition} ORDER BY id"
    found = session.sql(text, params, views=views)
    assert found["id"].to_pylist() == CONDITIONS[condition]  # type: ignore[index]


def test_create_insert_and_delete_by_a_query_find_rows_in_files_of_nulls(session: Session) -> None:
    session.sql("CREATE TABLE c AS SELECT id FROM t WHERE x IS DISTINCT FROM 1 OR x = 2")
    session.sql("INSERT INTO c SELECT -id FROM t WHERE x IS DISTINCT FROM 5 OR x = 2")
    found = session.sql("SELECT id FROM c ORDER BY id")
    assert found["id"].to_pylist() == [-4, -2, -1, 1, 2, 3, 4]  # type: ignore[index]
    session.sql("DELETE FROM t WHERE x IS DISTINCT FROM 5 OR x > 7")
    assert session.sql("SELECT id FROM t")["id"].to_pylist() == [3]  # type: ignore[index]

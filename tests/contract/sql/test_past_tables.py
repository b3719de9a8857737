"""Past versions of tables in statements: a query reads only the files that it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.api.execution.queries import PastRows
from lakevilla.api.session import Session


@pytest.fixture(params=["delta", "iceberg"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    session = lv.connect(tmp_path).session()
    session.sql(f"CREATE TABLE t (id BIGINT, k STRING) USING {request.param} PARTITIONED BY (k)")
    session.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'b')")
    session.sql("DELETE FROM t WHERE id = 2")
    session.sql("UPDATE t SET id = id + 10")
    return session


def ids(session: Session, text: str, params: dict[str, object] | None = None) -> list[Any]:
    found = session.sql(text, params)
    assert not isinstance(found, lv.OperationResult | lv.CommitResult | None)
    return sorted(next(iter(row.values())) for row in found.to_pylist())


@pytest.fixture
def never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise AssertionError("it is read whole")

    monkeypatch.setattr(PastRows, "__arrow_c_stream__", refuse)


@pytest.mark.usefixtures("never_whole")
def test_a_query_can_read_past_versions_and_join_them_with_the_present_one(
    session: Session,
) -> None:
    assert ids(session, "SELECT id FROM t VERSION AS OF 1") == [1, 2, 3]
    assert ids(session, "SELECT id FROM t VERSION AS OF 2 WHERE k = 'b'") == [3]
    assert ids(session, "SELECT id FROM t AT (VERSION => 2) WHERE id > 1") == [2, 3]
    both = "SELECT t.id - old.id FROM t JOIN t VERSION AS OF 1 AS old ON t.id = old.id + 10"
    assert ids(session, both) == [10, 10]
    session.sql("BEGIN; INSERT INTO t VALUES (7, 'c')")
    left = "SELECT id FROM t EXCEPT SELECT id FROM t VERSION AS OF :v"
    assert ids(session, left, {"v": 3}) == [7]
    session.sql("ROLLBACK")
    session.sql("INSERT OVERWRITE t SELECT * FROM t VERSION AS OF 1")
    assert ids(session, "SELECT id FROM t") == [1, 2, 3]


@pytest.mark.usefixtures("never_whole")
def test_filters_on_a_past_version_are_pushed_into_its_files(session: Session) -> None:
    plan = session.sql("EXPLAIN SELECT id FROM t VERSION AS OF 1 WHERE id > 2")
    shown = str(plan["detail"].to_pylist())  # type: ignore[index]
    assert "READ_PARQUET" in shown
    assert "Filters" in shown


def test_insert_merge_and_create_table_can_query_past_tables(session: Session) -> None:
    session.sql("INSERT INTO t SELECT id + 20, k FROM t VERSION AS OF 1 WHERE k = 'b'")
    assert ids(session, "SELECT id FROM t") == [11, 13, 22, 23]
    session.sql(
        "MERGE INTO t USING (SELECT * FROM t VERSION AS OF 1) AS o ON t.id = o.id + 10 "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    )
    assert ids(session, "SELECT id FROM t") == [2, 22, 23]
    session.sql("CREATE TABLE u AS SELECT * FROM t AT (VERSION => 2)")
    assert ids(session, "SELECT id FROM u") == [1, 2, 3]


def test_a_query_can_read_branches_and_tags_together_with_the_lake(session: Session) -> None:
    session.sql("CREATE BRANCH etl")
    session.sql("CREATE TAG old AT (VERSION => 2)")
    session.sql("USE BRANCH etl")
    session.sql("INSERT INTO t VALUES (50, 'x')")
    session.sql("USE main")
    session.sql("INSERT INTO t VALUES (60, 'y')")
    assert ids(session, "SELECT id FROM t AT (BRANCH => etl)") == [11, 13, 50]
    assert ids(session, "SELECT id FROM t EXCEPT SELECT id FROM t AT (BRANCH => etl)") == [60]
    assert ids(session, "SELECT id FROM t AT (TAG => old)") == [1, 2, 3]
    session.sql("USE BRANCH etl")
    assert ids(session, "SELECT id FROM t EXCEPT SELECT id FROM t AT (VERSION => 4)") == [50]


def test_a_past_version_with_missing_files_is_reported_as_missing(
    session: Session, tmp_path: Path
) -> None:
    live = {
        path.name
        for path in tmp_path.rglob("*.parquet")
        if "_lakevilla" not in path.parts and path.parts[-1].startswith("lv-")
    }
    session.sql("INSERT OVERWRITE t SELECT * FROM t")
    for path in list(tmp_path.rglob("*.parquet")):
        if path.name in live:
            path.unlink()
    assert ids(session, "SELECT id FROM t") == [11, 13]
    with pytest.raises(lv.VersionNotFound):
        session.sql("SELECT id FROM t VERSION AS OF 1")
    with pytest.raises(lv.VersionNotFound):
        session.sql("SELECT id FROM t VERSION AS OF 99")


@pytest.fixture
def grown(tmp_path: Path) -> lv.Lake:
    """Return a lake whose table ``t`` got the ids 1 to 3, one with each of its versions."""
    lake = lv.connect(tmp_path / "grown")
    lake.create_table("t", [{"id": 1}])
    for number in (2, 3):
        lake.run(lambda txn, number=number: txn.append("t", [{"id": number}]))
    lake.branch("etl")
    lake.on("etl").run(lambda txn: txn.append("t", [{"id": 50}]))
    return lake


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ("VERSION AS OF 1", [1, 2]),
        ("AT (VERSION => 1)", [1]),
        ("AT (VERSION => :one)", [1]),
        ("AT (BRANCH => etl)", [1, 2, 3, 50]),
    ],
)
def test_statements_outside_of_sessions_read_other_states(
    grown: lv.Lake, state: str, found: list[int]
) -> None:
    query = f"SELECT id FROM t {state} WHERE id <> :zero ORDER BY id"
    states = {"one": 1} if ":one" in state else {}
    params = states | {"zero": 0}
    assert grown.sql(query, params)["id"].to_pylist() == found
    with grown.snapshot(2) as state_of_2:
        assert state_of_2.sql(query, params)["id"].to_pylist() == found
    with grown.transaction() as txn:
        made = txn.sql(f"INSERT INTO t SELECT id + 100 FROM t {state}", states)
        txn.abort()
    assert made.rows_inserted == len(found)


def test_statements_that_are_no_query_of_states_are_refused_outside_of_sessions(
    grown: lv.Lake,
) -> None:
    with pytest.raises(lv.InvalidOperation, match=r"syntax error at or near .*; correct the"):
        grown.sql("SELECT * FROM t LIMIT LIMIT")
    with pytest.raises(lv.InvalidOperation, match=":v has no value"):
        grown.sql("SELECT * FROM t VERSION AS OF :v")
    with pytest.raises(lv.InvalidOperation, match="only the newest state of a table"):
        grown.run(lambda txn: txn.sql("DELETE FROM t VERSION AS OF 1 WHERE id = 1"))


def test_the_changes_of_a_table_are_rows_of_a_table_function(grown: lv.Lake) -> None:
    def changed(text: str, **params: object) -> list[tuple[int, int]]:
        query = f"SELECT _commit_version AS v, id FROM {text} ORDER BY ALL"
        return [(row["v"], row["id"]) for row in grown.sql(query, params).to_pylist()]

    assert changed("table_changes('t', 1)") == [(1, 1), (2, 2), (3, 3)]
    assert changed("table_changes('t', 2, 2)") == [(2, 2)]
    assert changed("TABLE_CHANGES('t', :first, :last) AS c", first=2, last=3) == [(2, 2), (3, 3)]
    assert changed("table_changes('t', 3) c JOIN t USING (id)") == [(3, 3)]
    session = grown.session()
    session.sql("CREATE TABLE feed AS SELECT id, _change_type FROM table_changes('t', 2, 3)")
    assert grown.read("feed").num_rows == 2
    for text, message in [
        ("table_changes('t')", ", belongs here"),
        ("table_changes(t, 1)", "a text in '...' belongs here"),
        ("table_changes('t', '2024-01-01')", r"write table_changes\('name', 3, 7\)"),
        ("table_changes('t', 0)", "versions begin with 1"),
        ("table_changes('nope', 1)", "table nope does not exist"),
    ]:
        with pytest.raises(lv.LakeVillaError, match=message):
            grown.sql(f"SELECT * FROM {text}")

"""Views: names for queries, which are bound when they are used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla import dbapi
from lakevilla.api.session import Session
from lakevilla.cli.app import app
from lakevilla.global_log.head import FORMAT_WITH_VIEWS, Head
from tests.support.inside import inside


@pytest.fixture
def lake(tmp_path: Path) -> lv.Lake:
    lake = lv.connect(tmp_path)
    lake.create_table("stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 0}])
    lake.session().sql("CREATE VIEW few AS SELECT sku, qty FROM stock WHERE qty < 3 -- few")
    return lake


def rows(session: Session | lv.Lake | lv.Snapshot, text: str) -> list[Any]:
    found = session.sql(text)
    assert isinstance(found, pa.Table)
    return [tuple(row.values()) for row in found.to_pylist()]


def test_a_view_shows_what_its_query_finds_when_it_is_used(lake: lv.Lake) -> None:
    assert rows(lake, "SELECT * FROM few") == [("jam", 0)]
    lake.run(lambda txn: txn.append("stock", [{"sku": "oil", "qty": 1}]))
    for reader in (lake, lake.session(), lake.snapshot(), lv.connect(lake.root)):
        assert rows(reader, "SELECT f.sku FROM few f ORDER BY 1") == [("jam",), ("oil",)]
    with dbapi.connect(lake) as connection:
        assert connection.execute("SELECT count(*) FROM few").fetchall() == [(2,)]


def test_a_view_is_read_by_every_statement_that_has_a_query(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("CREATE VIEW s.w (name, n) AS SELECT few.sku, qty FROM few JOIN stock USING (qty)")
    session.sql("CREATE TABLE copy AS SELECT * FROM s.w; INSERT INTO copy SELECT 'x', 1 FROM few")
    session.sql("UPDATE copy SET n = 7 WHERE name IN (SELECT sku FROM few)")
    session.sql("MERGE INTO copy USING few ON name = sku WHEN MATCHED THEN UPDATE SET n = n + 1")
    assert rows(session, "FROM copy ORDER BY ALL") == [("jam", 8), ("x", 1)]
    text = "WITH stock AS (SELECT 'mine' AS sku) SELECT f.sku, stock.sku AS own FROM few f, stock"
    assert rows(session, text) == [("jam", "mine")]
    text = "SELECT s.w.name, w.n, s.w.* FROM s.w WHERE s.w.n = 0 ORDER BY s.w.name"
    assert [row[:2] for row in rows(session, text)] == [("jam", 0)]
    text = "WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a WHERE n < 2)"
    assert rows(session, f"{text} SELECT n, sku FROM a, few ORDER BY n") == [(1, "jam"), (2, "jam")]
    items = rows(session, "EXPLAIN SELECT * FROM few")
    assert items[0][0] == "files of stock"


def test_a_query_in_parentheses_that_has_a_with_reads_views(lake: lv.Lake) -> None:
    session = lake.session()
    own = "WITH own AS (SELECT 'mine' AS sku) SELECT sku FROM few UNION ALL SELECT sku FROM own"
    session.sql(f"CREATE TABLE copy AS ({own})")
    assert rows(session, "FROM copy ORDER BY ALL") == [("jam",), ("mine",)]
    session.sql(f"CREATE VIEW both_of AS ({own})")
    assert rows(session, "FROM both_of ORDER BY ALL") == [("jam",), ("mine",)]
    unions = f"({own}) UNION ALL (SELECT ')' FROM few)"
    assert sorted(rows(session, unions)) == [(")",), ("jam",), ("mine",)]


def test_views_are_listed_apart_from_tables(lake: lv.Lake) -> None:
    session = lake.session()
    assert [one.name for one in lake.tables()] == ["stock"]
    assert [one.name for one in lake.tables(details=False)] == ["stock"]
    assert rows(session, "SHOW TABLES") == [("stock", "delta")]
    definition = "SELECT sku, qty FROM stock WHERE qty < 3"
    assert rows(session, "SHOW VIEWS LIKE 'f%'") == [("few", definition)]
    text = "SELECT table_name, table_type FROM information_schema.tables ORDER BY ALL"
    assert rows(session, text) == [("few", "VIEW"), ("stock", "BASE TABLE")]
    text = "SELECT table_schema, view_definition FROM information_schema.views"
    assert rows(session, text) == [("main", definition)]
    text = "SELECT column_name FROM information_schema.columns WHERE table_name = 'few'"
    assert rows(session, text) == [("sku",), ("qty",)]
    session.sql("BEGIN; CREATE VIEW more AS SELECT 1 AS n; DROP VIEW few")
    assert [name for name, _ in rows(session, "SHOW VIEWS")] == ["more"]


def test_a_view_is_replaced_renamed_and_dropped(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("CREATE OR REPLACE VIEW few COMMENT 'one' AS SELECT 1 AS n")
    assert rows(lake, "FROM few") == [(1,)]
    assert ("comment", "one") in rows(session, "DESCRIBE DETAIL few")
    session.sql("CREATE VIEW IF NOT EXISTS few AS SELECT 2 AS n; ALTER VIEW few RENAME TO less")
    assert rows(lake, "FROM less") == [(1,)]
    session.sql("DROP VIEW less; DROP VIEW IF EXISTS less")
    with pytest.raises(lv.TableNotFound, match="does not exist"):
        session.sql("FROM less")


def test_the_name_of_a_dropped_view_is_free_for_views_and_tables(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("DROP VIEW few")
    session.sql("CREATE VIEW few AS SELECT 2 AS n")
    assert rows(lake, "FROM few") == [(2,)]
    session.sql("DROP VIEW few")
    session.sql("CREATE TABLE few AS SELECT 3 AS n")
    assert lake.read("few").to_pylist() == [{"n": 3}]
    assert deltalake.DeltaTable(f"{lake.root}/few").to_pyarrow_table().to_pylist() == [{"n": 3}]
    session.sql("BEGIN; DROP TABLE few; CREATE VIEW few AS SELECT 4 AS n; COMMIT")
    assert rows(lake, "FROM few") == [(4,)]
    session.sql("BEGIN; DROP VIEW few; CREATE TABLE few AS SELECT 5 AS n; COMMIT")
    assert lake.read("few").to_pylist() == [{"n": 5}]
    session.sql("DROP TABLE few")
    with pytest.raises(lv.TableExists):
        session.sql("CREATE VIEW few AS SELECT 6 AS n")
    session.sql("CREATE OR REPLACE VIEW few AS SELECT 6 AS n")
    assert rows(lake, "FROM few") == [(6,)]


def test_the_name_of_a_view_that_exists_says_how_to_define_it_again(lake: lv.Lake) -> None:
    session = lake.session()
    with pytest.raises(lv.TableExists, match="view few exists already: CREATE OR REPLACE VIEW"):
        session.sql("CREATE VIEW few AS SELECT 1 AS n")
    with pytest.raises(lv.TableExists, match="table stock exists already: write to it, or choose"):
        session.sql("CREATE VIEW stock AS SELECT 1 AS n")
    session.sql("CREATE VIEW IF NOT EXISTS few AS SELECT 1 AS n")


@pytest.mark.parametrize("delete_data", [False, True])
def test_a_view_is_not_dropped_as_a_table(lake: lv.Lake, delete_data: bool) -> None:
    with pytest.raises(lv.InvalidOperation, match="few is a view, and no table: DROP VIEW few"):
        lake.drop_table("few", delete_data=delete_data)
    with lake.transaction() as txn:
        txn.append("stock", [{"sku": "oil", "qty": 1}])
        with pytest.raises(lv.InvalidOperation, match="DROP VIEW few"):
            txn.drop_table("few")
    said = CliRunner().invoke(app, ["drop", lake.root, "few"])
    assert said.exit_code == 2
    assert "few is a view" in said.stderr
    assert ("oil", 1) in rows(lake, "FROM few")


def test_a_view_that_is_not_there_is_called_a_view(lake: lv.Lake) -> None:
    session = lake.session()
    for text in ("DROP VIEW nothing", "DROP VIEW sales.nothing"):
        name = text.removeprefix("DROP VIEW ")
        with pytest.raises(lv.TableNotFound, match=f"^view {name} does not exist: information_sch"):
            session.sql(text)
    session.sql("DROP VIEW few")
    with pytest.raises(lv.TableNotFound, match="view few does not exist"):
        session.sql("DROP VIEW few")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE OR REPLACE VIEW stock AS SELECT 1 AS n", "stock is a table, and no view"),
        ("CREATE OR REPLACE TABLE few AS SELECT 1 AS n", "is a view, and can't be replaced by a t"),
        ("DROP TABLE few", "few is a view, and no table: DROP VIEW few"),
        ("DROP VIEW stock", "stock is a table, and no view: DROP TABLE stock"),
        ("CREATE VIEW v AS SELECT * FROM v", "view v would read itself"),
        ("CREATE OR REPLACE VIEW few AS SELECT * FROM few", "view few would read itself"),
        ("CREATE VIEW v AS SELECT * FROM lakevilla_tables", "can't show the catalog"),
        ("CREATE VIEW v AS SELECT * FROM stock VERSION AS OF 0", "can't name a state"),
        ("CREATE VIEW v (a, b) AS SELECT 1", "names 2 columns, and its query has 1"),
        ("CREATE VIEW v AS SELECT :n", "parameter :n has no value"),
        ("CREATE VIEW v AS SELECT nope FROM stock", "nope"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "CREATE TABLE ... AS keeps rows"),
        ("INSERT INTO few VALUES ('x', 1)", "insert: few is a view"),
        ("UPDATE few SET qty = 1", "update: few is a view"),
        ("DELETE FROM few", "delete: few is a view"),
        ("ALTER TABLE few ADD COLUMN n INT", "alter: few is a view"),
        ("SELECT * FROM few VERSION AS OF 0", "read: few is a view"),
    ],
)
def test_a_view_refuses_what_it_can_not_do(lake: lv.Lake, text: str, message: str) -> None:
    with pytest.raises(lv.LakeVillaError) as error:
        lake.session().sql(text)
    assert message in str(error.value)
    assert rows(lake, "FROM few") == [("jam", 0)]


def test_verbs_over_rows_of_tables_refuse_a_view(lake: lv.Lake) -> None:
    for read in (
        lambda: lake.read("few"),
        lambda: lake.scan("few"),
        lambda: lake.table("few").read(),
        lambda: lake.export("few", "out/few", copy=True),
        lambda: lake.snapshot().changes("few", 0),
        lambda: lake.run(lambda txn: txn.append("few", [{"sku": "x", "qty": 1}])),
        lambda: lake.run(lambda txn: txn.overwrite("few", [{"sku": "x", "qty": 1}])),
    ):
        with pytest.raises(lv.InvalidOperation, match="few is a view"):
            read()


def test_a_view_that_reads_itself_through_another_is_refused(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("CREATE VIEW outer_one AS SELECT sku, qty FROM few")
    with pytest.raises(lv.InvalidOperation, match="view few reads itself, through outer_one"):
        session.sql("CREATE OR REPLACE VIEW few AS SELECT * FROM outer_one")
    assert rows(lake, "FROM outer_one") == [("jam", 0)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DROP TABLE stock", "view few: table stock does not exist"),
        ("ALTER TABLE stock RENAME TO goods", "view few: table stock does not exist: it was rena"),
        ("CREATE OR REPLACE TABLE stock AS SELECT 'x' AS sku, 1 AS n", "view few: .*qty"),
    ],
)
def test_a_view_over_a_table_that_has_changed_says_so(
    lake: lv.Lake, change: str, message: str
) -> None:
    lake.session().sql(f"CREATE VIEW outer_one AS SELECT sku FROM few; {change}")
    for query in ("SELECT * FROM few", "WITH a AS (FROM few) SELECT sku FROM a"):
        with pytest.raises(lv.LakeVillaError, match=message):
            lake.sql(query)
    with pytest.raises(lv.LakeVillaError, match="view "):
        lake.sql("FROM outer_one")
    if "DROP" in change:
        lake.session().sql("CREATE OR REPLACE TABLE stock AS SELECT 'new' AS sku, 1 AS qty")
        assert rows(lake, "FROM few") == [("new", 1)]


# ------------------------------------------------------------- states


def test_a_view_of_the_past_shows_the_past(lake: lv.Lake) -> None:
    before = lake.snapshot().version
    session = lake.session()
    session.sql("UPDATE stock SET qty = 2; CREATE OR REPLACE VIEW few AS SELECT 'new' AS sku")
    assert rows(lake.snapshot(before), "FROM few") == [("jam", 0)]
    assert rows(session, f"SELECT * FROM few AT (VERSION => {before})") == [("jam", 0)]
    with pytest.raises(lv.LakeVillaError, match="few"):
        lake.snapshot(before - 1).sql("FROM few")
    session.sql("DROP VIEW few")
    assert rows(lake.snapshot(before), "FROM few") == [("jam", 0)]
    session.sql("CREATE TABLE few AS SELECT 1 AS n")
    assert rows(lake.snapshot(before), "FROM few") == [("jam", 0)]
    assert rows(lake, f"FROM few AT (VERSION => {before}), few AS now") == [("jam", 0, 1)]


def test_views_are_kept_by_tags_and_changed_and_merged_by_branches(lake: lv.Lake) -> None:
    lake.tag("then")
    lake.branch("etl")
    etl = lake.on("etl")
    session = etl.session()
    session.sql("CREATE VIEW made AS SELECT qty FROM stock; CREATE OR REPLACE VIEW few AS SELECT 1")
    session.sql("INSERT INTO stock VALUES ('oil', 1)")
    assert rows(etl, "SELECT count(*) FROM made") == [(3,)]
    assert rows(lake, "FROM few") == [("jam", 0)]
    with pytest.raises(lv.TableNotFound):
        lake.sql("FROM made")
    lake.merge("etl")
    assert rows(lake, "SELECT count(*) FROM made") == [(3,)]
    assert rows(lake, "FROM few") == [(1,)]
    assert rows(lake.on("then"), "FROM few") == [("jam", 0)]
    etl.session().sql("DROP VIEW made")
    lake.merge("etl")
    assert [name for name, _ in rows(lake.session(), "SHOW VIEWS")] == ["few"]


def test_a_merge_of_a_view_that_both_sides_have_replaced_is_a_conflict(lake: lv.Lake) -> None:
    lake.branch("etl")
    lake.on("etl").session().sql("CREATE OR REPLACE VIEW few AS SELECT 1 AS n")
    lake.session().sql("CREATE OR REPLACE VIEW few AS SELECT 2 AS n")
    with pytest.raises(lv.MergeConflict):
        lake.merge("etl")
    assert rows(lake, "FROM few") == [(2,)]


def test_the_head_of_a_branch_with_views_has_their_format(tmp_path: Path) -> None:
    lake = lv.connect(tmp_path / "plain")
    lake.create_table("t", [{"n": 1}])
    lake.branch("etl")
    lake.on("etl").session().sql("CREATE VIEW v AS SELECT n FROM t")
    lake.run(lambda txn: txn.append("t", [{"n": 2}]))
    lake.rebase("etl")
    lake.merge("etl")
    lake.branch("next")
    for one in (lake.on("etl"), lake, lake.on("next")):
        assert rows(one, "SELECT count(*) FROM v") == [(2,)]
        held = inside(one).context.held
        assert held is not None
        assert held.head.format == FORMAT_WITH_VIEWS


def test_a_branch_is_rebased_on_new_views(lake: lv.Lake) -> None:
    lake.branch("etl")
    lake.on("etl").run(lambda txn: txn.append("stock", [{"sku": "oil", "qty": 1}]))
    lake.session().sql("CREATE OR REPLACE VIEW few AS SELECT max(sku) AS sku FROM stock")
    lake.rebase("etl")
    assert rows(lake.on("etl"), "FROM few") == [("tea",)]


def test_a_clone_shows_its_views(lake: lv.Lake) -> None:
    lake.session().sql("CREATE TABLE a.t AS SELECT 1 AS n; CREATE VIEW a.v AS SELECT n FROM a.t")
    lake.clone("a", "b")
    assert rows(lake, "FROM b.v") == [(1,)]
    assert [one.name for one in lake.tables()] == ["a/t", "b/t", "stock"]


def test_attached_views_show_the_state_of_the_others(lake: lv.Lake) -> None:
    connection = duckdb.connect()
    lake.attach(connection)
    lake.run(lambda txn: txn.append("stock", [{"sku": "oil", "qty": 1}]))
    assert connection.sql("SELECT sku FROM few WHERE qty >= 0").fetchall() == [("jam",)]
    lake.attach(connection, ["few"])
    assert len(connection.sql("SELECT sku FROM few").fetchall()) == 2


# ------------------------------------------------------------- races


def test_of_two_clients_that_give_one_name_to_a_view_and_a_table_one_does(lake: lv.Lake) -> None:
    one, two = lake.session(), lv.connect(lake.root).session()
    for first, second in [
        ("CREATE VIEW n1 AS SELECT 1 AS n", "CREATE TABLE n1 (n INT)"),
        ("CREATE TABLE n2 (n INT)", "CREATE VIEW n2 AS SELECT 1 AS n"),
        ("CREATE VIEW n3 AS SELECT 1 AS n", "CREATE OR REPLACE VIEW n3 AS SELECT 2 AS n"),
    ]:
        one.sql(f"BEGIN; {first}")
        two.sql(f"BEGIN; {second}; COMMIT")
        with pytest.raises((lv.ConflictError, lv.TableExists)):
            one.sql("COMMIT")
        one.sql("ROLLBACK") if one.transaction is not None else None
    assert [name for name, _ in rows(lake.session(), "SHOW VIEWS")] == ["few", "n2", "n3"]
    assert [one.name for one in lake.tables()] == ["n1", "stock"]


def test_a_view_is_not_replaced_where_another_client_has_put_a_table(lake: lv.Lake) -> None:
    one, two = lake.session(), lv.connect(lake.root).session()
    one.sql("BEGIN; CREATE OR REPLACE VIEW few AS SELECT 1 AS n")
    two.sql("BEGIN; DROP VIEW few; CREATE TABLE few AS SELECT 2 AS n; COMMIT")
    with pytest.raises(lv.ConflictError):
        one.sql("COMMIT")
    assert lake.read("few").to_pylist() == [{"n": 2}]
    one.sql("BEGIN; CREATE OR REPLACE TABLE few AS SELECT 3 AS n")
    two.sql("BEGIN; DROP TABLE few; CREATE VIEW few AS SELECT 4 AS n; COMMIT")
    with pytest.raises(lv.ConflictError):
        one.sql("COMMIT")
    assert rows(lake, "FROM few") == [(4,)]


def test_a_transaction_that_used_a_view_is_in_conflict_with_its_replacement(lake: lv.Lake) -> None:
    lake.create_table("seen", [{"n": 0}])
    session = lake.session()
    session.sql("BEGIN; INSERT INTO seen SELECT qty FROM few")
    lake.session().sql("CREATE OR REPLACE VIEW few AS SELECT 'x' AS sku, 9 AS qty")
    with pytest.raises(lv.ConflictError):
        session.sql("COMMIT")
    lake.session().sql("BEGIN; INSERT INTO seen SELECT qty FROM few; COMMIT")
    assert sorted(row["n"] for row in lake.read("seen").to_pylist()) == [0, 9]


def test_an_insert_over_a_view_is_redone_with_the_rows_of_others(lake: lv.Lake) -> None:
    lake.create_table("seen", [{"n": 0}])
    session = lake.session()
    session.sql("BEGIN; INSERT INTO seen SELECT qty FROM few")
    lake.run(lambda txn: txn.append("stock", [{"sku": "oil", "qty": 1}]))
    session.sql("COMMIT")
    assert sorted(row["n"] for row in lake.read("seen").to_pylist()) == [0, 0, 1]


def test_a_view_that_another_client_has_just_made_is_found(lake: lv.Lake) -> None:
    other = lv.connect(lake.root)
    other.sql("SELECT * FROM stock")
    lake.session().sql("CREATE VIEW n AS SELECT 1 AS n")
    assert rows(other, "FROM n") == [(1,)]
    lake.session().sql("BEGIN; DROP VIEW n; CREATE TABLE n AS SELECT 2 AS n; COMMIT")
    assert rows(other, "FROM n") == [(2,)]


# ------------------------------------------------------------- other clients


def test_clients_that_do_not_know_views_refuse_them_by_name(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Exception, match="lakevillaView"):
        deltalake.DeltaTable(f"{lake.root}/few").to_pyarrow_table()
    assert inside(lake).context.held is not None
    assert inside(lake).context.held.head.format == FORMAT_WITH_VIEWS
    monkeypatch.setattr(Head, "FORMAT", FORMAT_WITH_VIEWS - 1)
    with pytest.raises(lv.UnsupportedFormat, match="HEAD"):
        lv.connect(lake.root).sql("SELECT * FROM stock")


def test_a_lake_without_views_keeps_its_format(tmp_path: Path) -> None:
    lake = lv.connect(tmp_path / "plain")
    lake.create_table("t", [{"n": 1}])
    lake.session().sql("SHOW VIEWS; BEGIN; CREATE VIEW v AS SELECT 1 AS n; ROLLBACK")
    lake.run(lambda txn: txn.append("t", [{"n": 2}]))
    assert inside(lake).context.held.head.format < FORMAT_WITH_VIEWS


def test_a_rebuilt_head_knows_which_names_are_views(lake: lv.Lake) -> None:
    lake.session().sql("CREATE VIEW more AS SELECT 1 AS n")
    Path(lake.root, "_lakevilla/HEAD.json").unlink()
    again = lv.connect(lake.root)
    again.recover(rebuild_head=True)
    assert [name for name, _ in rows(again.session(), "SHOW VIEWS")] == ["few", "more"]
    assert [one.name for one in again.tables()] == ["stock"]
    held = inside(again).context.held
    assert held is not None
    assert held.head.format == FORMAT_WITH_VIEWS


def test_upkeep_passes_over_views(lake: lv.Lake) -> None:
    lake.maintain()
    lake.gc()
    assert lake.verify().ok
    assert lake.doctor().ok
    assert rows(lake, "FROM few") == [("jam", 0)]

"""Sessions: the states they read, when other clients see their changes, and how they end."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.api.session import Session
from tests.support.inside import executor


@pytest.fixture
def lake(tmp_path: Path) -> lv.Lake:
    lake = lv.connect(tmp_path)
    lake.session().sql("""
        CREATE TABLE stock (sku STRING NOT NULL, qty BIGINT);
        CREATE TABLE orders (id BIGINT, sku STRING);
        INSERT INTO stock VALUES ('tea', 5), ('jam', 2)
    """)
    return lake


def quantities(session: Session | lv.Lake) -> dict[str, int]:
    rows = session.sql("SELECT sku, qty FROM stock").to_pylist()
    return {row["sku"]: row["qty"] for row in rows}


def test_a_session_in_a_transaction_sees_its_own_writes_and_no_later_ones_of_others(
    lake: lv.Lake,
) -> None:
    with lake.session() as mine, lake.session() as other:
        mine.sql("BEGIN")
        other.sql("BEGIN")
        assert mine.sql("SELECT * FROM orders").num_rows == 0
        mine.sql("UPDATE stock SET qty = 1 WHERE sku = 'tea'")
        other.sql("UPDATE stock SET qty = 9 WHERE sku = 'jam'")
        third = lake.session()
        third.sql("INSERT INTO orders VALUES (1, 'tea'); DELETE FROM stock WHERE qty > 100")
        assert quantities(mine) == {"tea": 1, "jam": 2}
        assert quantities(other) == {"tea": 5, "jam": 9}
        assert quantities(lake) == {"tea": 5, "jam": 2}
        assert mine.sql("SELECT * FROM orders").num_rows == 0
        other.sql("COMMIT")
        assert quantities(other) == quantities(lake) == {"tea": 5, "jam": 9}
        assert quantities(mine) == {"tea": 1, "jam": 2}
        mine.sql("ROLLBACK")
        assert quantities(mine) == {"tea": 5, "jam": 9}


def test_several_statements_in_one_text_take_effect_wholly_or_not_at_all(lake: lv.Lake) -> None:
    session = lake.session()
    with pytest.raises(lv.InvalidOperation, match=r"^statement 2 \(line 3\): .*no_such"):
        session.sql("\nINSERT INTO orders VALUES (1, 'tea');\n  UPDATE stock SET no_such = 1;")
    assert session.sql("SELECT * FROM orders").num_rows == 0
    assert session.transaction is None


def test_a_syntax_error_at_the_end_of_a_script_is_found_before_any_statement_runs(
    lake: lv.Lake,
) -> None:
    session = lake.session()
    with pytest.raises(lv.InvalidOperation, match=r"statement 3 \(line 2\): .*mean DELETE"):
        session.sql("BEGIN; INSERT INTO orders VALUES (1, 'tea');\nDELTE FROM orders; COMMIT")
    assert session.transaction is None
    assert session.sql("SELECT * FROM orders").num_rows == 0


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE stock SET qty = qty - 1; INSERT INTO orders SELECT qty, sku FROM stock",
        "BEGIN; UPDATE stock SET qty = qty - 1; INSERT INTO orders SELECT qty, sku FROM stock; "
        "COMMIT",
        "BEGIN ATOMIC UPDATE stock SET qty = qty - 1; INSERT INTO orders SELECT qty, sku FROM "
        "stock; END",
    ],
)
def test_a_transaction_in_one_text_is_run_again_after_a_conflict(
    lake: lv.Lake, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation whose row count was read can't be redone, so the whole text runs again."""
    runs = 0
    real = lv.Transaction._sql

    def sql(txn: lv.Transaction, query: str, *args: object, **kwargs: object) -> object:
        nonlocal runs
        done = real(txn, query, *args, **kwargs)  # type: ignore[arg-type]
        if query.startswith("UPDATE"):
            runs += 1
            assert done.rows_updated == 2  # type: ignore[union-attr]
            if runs == 1:
                lake.run(lambda other: other.update("stock", {"qty": "100"}, where="sku = 'tea'"))
                lake.run(lambda other: other.append("stock", [{"sku": "ham", "qty": 1}]))
                lake.run(lambda other: other.delete("stock", where="sku = 'jam'"))
                lake.run(lambda other: other.append("stock", [{"sku": "oil", "qty": 7}]))
                lake.run(lambda other: other.delete("stock", where="sku = 'ham'"))
        return done

    monkeypatch.setattr(lv.Transaction, "_sql", sql)
    lake.session().sql(text)
    monkeypatch.undo()
    assert quantities(lake) == {"tea": 99, "oil": 6}
    assert {row["id"] for row in lake.read("orders").to_pylist()} == {99, 6}


def test_a_transaction_over_several_texts_raises_a_conflict_and_is_not_run_again(
    lake: lv.Lake,
) -> None:
    session = lake.session()
    session.sql("BEGIN")
    assert quantities(session)["tea"] == 5
    lake.run(lambda txn: txn.update("stock", {"qty": "0"}, where="sku = 'tea'"))
    session.sql("INSERT INTO orders VALUES (1, 'tea')")
    with pytest.raises(lv.ConflictError):
        session.sql("COMMIT")
    assert session.transaction is None
    assert session.sql("SELECT * FROM orders").num_rows == 0
    session.sql("BEGIN")


def test_a_statement_that_raises_leaves_the_transaction_open_and_unchanged(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("BEGIN; UPDATE stock SET qty = 7 WHERE sku = 'tea'")
    with pytest.raises(lv.InvalidOperation):
        session.sql("INSERT INTO stock VALUES (NULL, 1)")
    assert quantities(session) == {"tea": 7, "jam": 2}
    session.sql("COMMIT")
    assert quantities(lake) == {"tea": 7, "jam": 2}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["COMMIT"], "no transaction is open: COMMIT follows a BEGIN"),
        (["ROLLBACK"], "no transaction is open: ROLLBACK follows a BEGIN"),
        (["BEGIN", "BEGIN"], "a transaction is open, and can't hold another"),
        (["BEGIN", "BEGIN ATOMIC SELECT 1; END"], "a transaction is open"),
        (["BEGIN; BEGIN; COMMIT"], "a transaction is open"),
        (["BEGIN", "SET isolation = 'snapshot'"], "keeps the isolation that it began with"),
        (["SELECT 1; SET isolation = 'snapshot'"], "keeps the isolation that it began with"),
        (["SAVEPOINT a"], "no transaction is open: savepoint a can only be one within"),
        (["BEGIN; COMMIT; ROLLBACK TO a"], "no transaction is open"),
        (["BEGIN; ROLLBACK TO 3"], "lake.rollback(version) returns the whole lake"),
        (["BEGIN; ROLLBACK TO a; COMMIT"], "savepoint a does not exist"),
        (["SET isolatoin = 1"], "did you mean isolation?"),
        (["SET isolation = 'serialisable'"], "isolation is serializable or snapshot"),
        (["BEGIN ISOLATION LEVEL READ COMMITTED"], "no isolation level below snapshot"),
        (["BEGIN (FEATURES R, X)"], "features are R, CT and I"),
        (["BEGIN IMMEDIATE"], "BEGIN ... IMMEDIATE is not supported"),
        (["SELECT 'a"], "a quote is not closed"),
        (["BEGIN ATOMIC DELETE FROM stock"], "has no END"),
        (["  ;; -- nothing"], "sql is empty"),
        ([""], "sql is empty"),
        (["SELECT '\ud800'"], "half of a surrogate pair"),
        (["SET wait_timeout_seconds = -1"], "wait_timeout_seconds must be a number of seconds"),
        (["SET slack = 1.5"], "slack must be a whole number"),
        (["UPDATE stock"], "the statement is incomplete; SET belongs here"),
        (
            ["DROP"],
            "the statement is incomplete; DROP continues with TABLE, VIEW, BRANCH, TAG, SCHEMA",
        ),
        (["DROP TABEL stock"], "DROP continues with TABLE, VIEW, BRANCH, TAG"),
        (["SHOW TABELS"], "did you mean SHOW TABLES?"),
        (["CREATE VIEW v (a INT) AS SELECT 1"], ") belongs here"),
        (["CREATE TABLE t (a INT, A INT)"], "column 'A' is named twice"),
        (["CREATE TABLE t (a INT PRIMARY KEY)"], "no table checks keys"),
        (["CREATE TABLE t (a INT DEFAULT 1)"], "give the value in each INSERT"),
        (["CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT 1"], "leave out one of the two"),
        (["CREATE OR REPLACE TABLE IF NOT EXISTS t (a INT)"], "leave out one of the two"),
        (["CREATE TABLE t LIKE stock PARTITIONED BY (sku)"], "they are the other table's"),
        (["CREATE TABLE t (a XML)"], "the type 'XML', which is unknown: types are boolean"),
        (["CREATE TABLE t (a BIT(3))"], "'BIT(3)', which no table can keep: use string"),
        (["CREATE TABLE t (a TIMETZ)"], "which no table can keep: use time for times of one zone"),
        (["ALTER TABLE stock ADD COLUMN a BIT"], "which no table can keep: use string"),
        (["CREATE TABLE t (a SERIAL)"], 'which is unknown: did you mean "int"?'),
        (["ALTER TABLE stock ADD PRIMARY KEY (sku)"], "no table checks keys"),
        (["ALTER TABLE stock ADD CONSTRAINT k UNIQUE (sku)"], "no table checks keys"),
        (
            ["ALTER TABLE stock ADD CONSTRAINT k FOREIGN KEY (a) REFERENCES t"],
            "no table checks keys",
        ),
        (["CREATE TABLE t"], "list them in brackets"),
        (["CREATE TABLE t (a INT) USING parquet"], "USING delta or USING iceberg"),
        (["CREATE TABLE t (a INT) LOCATION 's3://b'"], "lake.register"),
    ],
)
def test_the_error_for_an_invalid_session_statement_says_what_is_supported(
    lake: lv.Lake, texts: list[str], message: str
) -> None:
    session = lake.session()
    for text in texts[:-1]:
        session.sql(text)
    is_open = session.transaction
    with pytest.raises(lv.InvalidOperation) as caught:
        session.sql(texts[-1])
    assert message in str(caught.value)
    assert session.transaction is is_open
    session.close()


def test_closing_a_session_aborts_its_open_transaction(lake: lv.Lake) -> None:
    with lake.session() as session:
        session.sql("BEGIN; DELETE FROM stock")
        txn = session.transaction
    assert txn is not None
    assert txn.state == "aborted"
    assert quantities(lake) == {"tea": 5, "jam": 2}
    with pytest.raises(lv.InvalidOperation, match="the session is closed"):
        session.sql("SELECT 1")


def test_settings_apply_to_later_transactions_and_options_of_begin_to_one(
    lake: lv.Lake,
) -> None:
    with lake.session() as session:
        session.sql("SET isolation TO 'snapshot'; SET slack = 1")
        session.sql("BEGIN (FEATURES R, CT, I)")
        options = executor(session.transaction).state.options
        assert (options.isolation, options.slack) == ("snapshot", 1)
        assert options.features == lv.Feature.R | lv.Feature.CT | lv.Feature.I
        session.sql("ROLLBACK")
        session.sql("RESET isolation; RESET slack")
        session.sql("BEGIN READ ONLY")
        options = executor(session.transaction).state.options
        assert (options.isolation, options.slack) == ("serializable", 0)
        assert options.read_only
        with pytest.raises(lv.InvalidOperation, match="read-only"):
            session.sql("DELETE FROM stock")


def test_serializable_sessions_prevent_write_skew(lake: lv.Lake) -> None:
    """Snapshot isolation allows write skew; the default isolation does not."""
    for isolation, both in (("snapshot", True), ("serializable", False)):
        with lake.session(isolation=isolation) as a, lake.session(isolation=isolation) as b:  # type: ignore[arg-type]
            a.sql("BEGIN; SELECT * FROM orders")
            b.sql("BEGIN; SELECT * FROM stock")
            a.sql("INSERT INTO stock VALUES ('ham', 1)")
            b.sql("INSERT INTO orders VALUES (9, 'ham')")
            a.sql("COMMIT")
            if both:
                b.sql("COMMIT")
            else:
                with pytest.raises(lv.ConflictError):
                    b.sql("COMMIT")


def test_a_byte_order_mark_before_a_text_is_ignored(lake: lv.Lake) -> None:
    with lake.session() as session:
        assert session.sql("\ufeffSELECT 1 AS a").to_pylist() == [{"a": 1}]  # type: ignore[union-attr]


def test_parameters_and_views_are_passed_to_the_statements_that_use_them(lake: lv.Lake) -> None:
    session = lake.session()
    rows = session.sql(
        "DELETE FROM stock WHERE sku = :gone; INSERT INTO stock SELECT * FROM more WHERE qty > :n; "
        "SELECT sku FROM stock WHERE qty < :most ORDER BY sku",
        {"gone": "jam", "n": 1, "most": 6},
        {"more": [{"sku": "ham", "qty": 1}, {"sku": "oil", "qty": 3}]},
    )
    assert rows.to_pylist() == [{"sku": "oil"}, {"sku": "tea"}]
    with pytest.raises(lv.InvalidOperation, match="unused"):
        session.sql("SELECT 1; SELECT 2", {"unused": 1})


def test_tables_that_a_transaction_creates_show_to_others_only_after_its_commit(
    lake: lv.Lake,
) -> None:
    session = lake.session()
    session.sql("BEGIN; CREATE TABLE totals AS SELECT sku, qty FROM stock WHERE qty > 2")
    session.sql("CREATE TABLE IF NOT EXISTS totals (a INT); DROP TABLE IF EXISTS no_such")
    assert session.sql("SHOW TABLES LIKE 't%'").to_pylist() == [
        {"name": "totals", "format": "delta"}
    ]
    assert lake.session().sql("SHOW TABLES LIKE 't%'").num_rows == 0
    session.sql("DROP TABLE orders; COMMIT")
    assert [row["name"] for row in lake.session().sql("SHOW TABLES").to_pylist()] == [
        "stock",
        "totals",
    ]
    assert lake.read("totals").to_pylist() == [{"sku": "tea", "qty": 5}]


def test_invalid_options_of_a_session_are_refused_at_once(lake: lv.Lake) -> None:
    for options in ({"isolaton": "snapshot"}, {"idempotency_key": "a"}, {"features": 3}):
        with pytest.raises(lv.InvalidOperation):
            lake.session(**options)  # type: ignore[arg-type]


def test_last_transaction_is_the_transaction_of_the_last_statement(lake: lv.Lake) -> None:
    session = lake.session()
    assert session.last_transaction is None
    session.sql("INSERT INTO orders VALUES (1, 'tea')")
    alone = session.last_transaction
    assert alone is not None
    assert session.transaction is None
    assert (alone.state, lake.outcome(alone.id).state) == ("committed", "committed")
    session.sql("SELECT * FROM orders")
    assert session.last_transaction is None
    session.sql("BEGIN")
    begun = session.last_transaction
    assert begun is session.transaction
    session.sql("SELECT * FROM orders")
    session.sql("ROLLBACK")
    assert session.last_transaction is begun
    assert begun is not None
    assert begun.state == "aborted"
    session.sql("BEGIN; INSERT INTO orders VALUES (2, 'jam'); COMMIT")
    assert session.last_transaction is not begun


def test_an_abandoned_session_blocks_no_other_and_its_transaction_can_be_aborted(
    lake: lv.Lake, tmp_path: Path
) -> None:
    session = lake.session()
    session.sql("BEGIN; INSERT INTO orders VALUES (1, 'tea'); SELECT * FROM orders")
    txn = session.transaction
    assert txn is not None
    txn.save()  # stores its files, and names them in its record
    left = {path.name for path in (tmp_path / "orders").glob("*.parquet")}
    assert left
    with lake.session() as other:  # no other session waits for it
        other.sql("DELETE FROM orders; INSERT INTO orders VALUES (2, 'jam')")
    assert lake.transactions()[0].id == txn.id
    lake.abort(txn.id)  # an operator can do so, or gc after the lease
    with pytest.raises(lv.TransactionAborted):
        session.sql("COMMIT")
    assert session.transaction is None
    assert lake.read("orders").to_pylist() == [{"id": 2, "sku": "jam"}]


def test_a_warning_reports_lost_writes_of_a_session_without_references(lake: lv.Lake) -> None:
    held = [lake.session()]
    held[0].sql("BEGIN; INSERT INTO orders VALUES (1, 'tea')")
    with pytest.warns(lv.LakeVillaWarning, match="what it has written"):
        held.clear()
    assert lake.read("orders").num_rows == 0


@pytest.mark.parametrize("option", ["verify", "batch", "isolatoin"])
def test_unknown_transaction_options_are_refused_when_the_session_begins(
    lake: lv.Lake, option: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match=f"unknown transaction option '{option}'"):
        lake.session(**{option: "on"})

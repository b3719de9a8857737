"""Savepoints: a transaction goes back to what it had done before."""

from __future__ import annotations

from random import Random

import pytest

import lakevilla as lv
from lakevilla import dbapi
from lakevilla.api.session import Session
from tests.support.places import Place
from tests.support.search import how_many


@pytest.fixture
def lake(quick_place: Place) -> lv.Lake:
    lake = quick_place.connect()
    lake.create_table("stock", [{"sku": 1, "qty": 5}, {"sku": 2, "qty": 2}])
    return lake


def quantities(session: Session | lv.Lake) -> dict[int, int]:
    found = session.sql("SELECT sku, qty FROM stock ORDER BY sku")
    return {row["sku"]: row["qty"] for row in found.to_pylist()}  # type: ignore[union-attr]


def test_rollback_to_a_savepoint_undoes_what_came_after_it(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("BEGIN; UPDATE stock SET qty = 7 WHERE sku = 1; SAVEPOINT here")
    session.sql("UPDATE stock SET qty = qty + 1; DELETE FROM stock WHERE sku = 2")
    session.sql("CREATE TABLE made AS SELECT 1 AS n; INSERT INTO made VALUES (2)")
    session.sql("ROLLBACK TO SAVEPOINT here")
    assert quantities(session) == {1: 7, 2: 2}
    session.sql("INSERT INTO stock VALUES (3, 3); COMMIT")
    assert quantities(lake) == {1: 7, 2: 2, 3: 3}
    assert [one.name for one in lake.tables()] == ["stock"]
    lake.create_table("made", [{"n": 9}])
    assert lake.read("made").to_pylist() == [{"n": 9}]


def test_drops_renames_and_definitions_are_undone(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("BEGIN; SAVEPOINT a; ALTER TABLE stock ADD COLUMN note STRING")
    session.sql("ALTER TABLE stock RENAME TO goods; DELETE FROM goods; ROLLBACK TO a")
    assert quantities(session) == {1: 5, 2: 2}
    with pytest.raises(lv.TableNotFound):
        session.sql("SELECT * FROM goods")
    session.sql("DROP TABLE stock; ROLLBACK TO a; INSERT INTO stock VALUES (3, 3); COMMIT")
    assert quantities(lake) == {1: 5, 2: 2, 3: 3}
    assert lake.table("stock").schema.names == ["sku", "qty"]


def test_a_savepoint_stays_until_it_is_released_and_later_ones_go_with_it(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("BEGIN; SAVEPOINT a; UPDATE stock SET qty = 1; SAVEPOINT B; DELETE FROM stock")
    session.sql("ROLLBACK TO b")
    assert quantities(session) == {1: 1, 2: 1}
    session.sql("ROLLBACK TO A; UPDATE stock SET qty = 3; ROLLBACK TRANSACTION TO a")
    assert quantities(session) == {1: 5, 2: 2}
    with pytest.raises(lv.InvalidOperation, match=r"savepoint b does not exist: the .* has a"):
        session.sql("ROLLBACK TO b")
    session.sql("UPDATE stock SET qty = 4; RELEASE SAVEPOINT a")
    with pytest.raises(lv.InvalidOperation, match=r"savepoint a does not exist: the .* has none"):
        session.sql("RELEASE a")
    session.sql("COMMIT")
    assert quantities(lake) == {1: 4, 2: 4}


def test_the_last_of_savepoints_with_one_name_is_meant(lake: lv.Lake) -> None:
    lake.session().sql(
        "BEGIN; SAVEPOINT a; UPDATE stock SET qty = 1; SAVEPOINT a; UPDATE stock SET qty = 9; "
        "ROLLBACK TO a; RELEASE a; UPDATE stock SET qty = qty + 1; COMMIT"
    )
    assert quantities(lake) == {1: 2, 2: 2}


def test_a_read_after_a_savepoint_is_still_validated(lake: lv.Lake) -> None:
    lake.create_table("seen", [{"n": 1}])
    session = lake.session()
    session.sql("BEGIN; SAVEPOINT a; SELECT * FROM seen; ROLLBACK TO a")
    session.sql("UPDATE stock SET qty = 1")
    lake.run(lambda txn: txn.update("seen", {"n": "2"}, "true"))
    with pytest.raises(lv.ConflictError):
        session.sql("COMMIT")


def test_a_table_made_again_after_its_drop_can_not_be_dropped_by_a_savepoint(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("BEGIN; DROP TABLE stock; SAVEPOINT a; CREATE TABLE stock (sku BIGINT)")
    with pytest.raises(lv.InvalidOperation, match="ROLLBACK takes back all"):
        session.sql("ROLLBACK TO a")
    session.sql("ROLLBACK")
    assert quantities(lake) == {1: 5, 2: 2}


def test_a_transaction_that_is_resumed_lacks_what_was_undone(
    lake: lv.Lake, quick_place: Place
) -> None:
    session = lake.session()
    session.sql("SET durability = 'every_op'")
    session.sql("BEGIN; UPDATE stock SET qty = 1; SAVEPOINT a; DELETE FROM stock; ROLLBACK TO a")
    assert session.transaction is not None
    with quick_place.connect().resume(session.transaction.id) as txn:
        txn.commit()
    assert quantities(lake) == {1: 1, 2: 1}


def test_an_error_within_a_savepoint_fails_a_connection_until_it_goes_back(lake: lv.Lake) -> None:
    connection = dbapi.connect(lake, fail_on_error=True)
    connection.execute("UPDATE stock SET qty = 1")
    connection.execute("SAVEPOINT a")
    with pytest.raises(dbapi.ProgrammingError):
        connection.execute("SELECT * FROM nothing")
    with pytest.raises(dbapi.InternalError, match="has failed"):
        connection.execute("SELECT 1")
    connection.execute("ROLLBACK TO SAVEPOINT a")
    connection.execute("INSERT INTO stock VALUES (3, 3)")
    connection.commit()
    connection.close()
    assert quantities(lake) == {1: 1, 2: 1, 3: 3}


def test_a_conflict_within_a_savepoint_ends_the_whole_transaction(lake: lv.Lake) -> None:
    connection = dbapi.connect(lake, fail_on_error=True)
    connection.execute("SAVEPOINT a")
    connection.execute("SELECT * FROM stock")
    lake.run(lambda txn: txn.update("stock", {"qty": "9"}, "true"))
    connection.execute("UPDATE stock SET qty = 1")
    with pytest.raises(dbapi.TransactionConflict):
        connection.commit()
    with pytest.raises(dbapi.ProgrammingError, match="no transaction is open"):
        connection.execute("ROLLBACK TO a")
    connection.rollback()
    connection.close()
    assert quantities(lake) == {1: 9, 2: 9}


@pytest.mark.parametrize("seed", range(how_many(4, whole=60, soak=1000)))
def test_transactions_with_savepoints_commit_what_a_copy_of_their_rows_has(
    lake: lv.Lake, seed: int
) -> None:
    """Statements, savepoints and commits of others are drawn; a dict is changed beside them."""
    draw = Random(seed)
    others_write = draw.random() < 0.5  # what is read would then be in conflict
    session = lake.session()
    session.sql("BEGIN (FEATURES R, CT, I)" if draw.random() < 0.3 else "BEGIN")
    rows, foreign = {1: 5, 2: 2}, 0
    points: list[tuple[str, dict[int, int]]] = []
    for step in range(draw.randint(6, 14)):
        match draw.choice("iiuudsssrrfq"):
            case "i":
                session.sql(f"INSERT INTO stock VALUES ({step + 10}, {step})")
                rows[step + 10] = step
            case "u":
                session.sql("UPDATE stock SET qty = qty + 1 WHERE sku < 100")
                rows = {sku: qty + 1 for sku, qty in rows.items()}
            case "d":
                gone = draw.choice([*rows, 0])
                session.sql(f"DELETE FROM stock WHERE sku = {gone}")
                rows.pop(gone, None)
            case "s":
                session.sql(f"SAVEPOINT p{step}")
                points.append((f"p{step}", dict(rows)))
            case "r" if points:
                name, rows = points[draw.randrange(len(points))]
                session.sql(f"ROLLBACK TO {name}")
                points = points[: [one for one, _ in points].index(name) + 1]
                rows = dict(rows)
            case "f" if others_write:
                foreign += 1
                more = [{"sku": 100 + foreign, "qty": 0}]
                lake.run(lambda txn, more=more: txn.append("stock", more))
            case "q" if not others_write:
                assert quantities(session) == dict(sorted(rows.items()))
    session.sql("COMMIT")
    others = {100 + n: 0 for n in range(1, foreign + 1)}
    assert quantities(lake) == dict(sorted((rows | others).items()))

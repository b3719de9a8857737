"""Use pandas and polars with connections, and with SQLAlchemy's engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
import sqlalchemy as sa

import lakevilla as lv
from lakevilla import dbapi
from lakevilla.dbapi.sqlalchemy import types_of

ORDERS = [{"id": n, "sku": "tea" if n % 2 else None, "price": n / 4} for n in range(100)]


@pytest.fixture
def lake(tmp_path: Path) -> lv.Lake:
    lake = lv.connect(tmp_path / "lake")
    lake.create_table("orders", ORDERS)
    return lake


@pytest.fixture
def connection(lake: lv.Lake) -> Iterator[dbapi.Connection]:
    with dbapi.connect(lake) as connection:
        yield connection


@pytest.fixture
def engine(lake: lv.Lake) -> Iterator[sa.Engine]:
    engine = sa.create_engine("lakevilla://", connect_args={"lake": lake})
    yield engine
    engine.dispose()


QUERY = "SELECT id, sku, price FROM orders WHERE id < :most ORDER BY id"


@pytest.mark.filterwarnings("ignore:pandas only supports SQLAlchemy:UserWarning")
def test_pandas_reads_through_a_connection(connection: dbapi.Connection) -> None:
    frame = pd.read_sql(QUERY, connection, params={"most": 10})
    assert frame.to_dict("list")["id"] == list(range(10))
    parts = list(pd.read_sql(QUERY, connection, params={"most": 10}, chunksize=4))
    assert [len(part) for part in parts] == [4, 4, 2]
    with pytest.raises(Exception, match="by name, not by position") as caught:
        pd.read_sql(QUERY, connection, params=(10,))
    assert isinstance(caught.value, pd.errors.DatabaseError | dbapi.Error)


@pytest.mark.filterwarnings("ignore:pandas only supports SQLAlchemy:UserWarning")
def test_pandas_is_refused_to_write_through_a_connection_by_an_error_that_names_the_engine(
    connection: dbapi.Connection,
) -> None:
    with pytest.raises(Exception, match=r"create_engine\('lakevilla:///path'\)"):
        pd.DataFrame({"a": [1]}).to_sql("new", connection)
    connection.rollback()
    assert [table.name for table in connection.lake.tables()] == ["orders"]


def test_pandas_reads_through_an_engine(engine: sa.Engine) -> None:
    frame = pd.read_sql(sa.text(QUERY), engine, params={"most": 10})
    assert frame["price"].sum() == sum(row["price"] for row in ORDERS[:10])
    assert len(pd.read_sql_table("orders", engine, columns=["id"])) == 100


def test_pandas_writes_through_an_engine(lake: lv.Lake, engine: sa.Engine) -> None:
    """Create tables, append rows, and replace rows and columns of the same table."""
    frame = pd.DataFrame(
        {
            "id": range(5000),
            "name": ["a", None] * 2500,
            "size": [1.5, float("nan")] * 2500,
            "day": pd.date_range("2026-01-01", periods=5000, freq="min"),
        }
    )
    assert frame.to_sql("made", engine, index=False) == 5000
    assert frame.to_sql("made", engine, index=False, if_exists="append") == 5000
    assert lake.read("made").num_rows == 10_000
    assert lake.table("made").version == 1  # one commit for each call, and none for each row
    read = pd.read_sql_table("made", engine)
    assert read["size"].isna().sum() == read["name"].isna().sum() == 5000
    with pytest.raises(ValueError, match="already exists"):
        frame.to_sql("made", engine, index=False)
    other = frame[["name"]].assign(more=1)
    assert other.to_sql("made", engine, index=False, if_exists="replace") == 5000
    assert lake.table("made").version == 2  # the table was never absent
    assert lake.read("made").schema.names == ["name", "more"]
    assert lake.table("made").read(version=1).num_rows == 10_000
    assert other[:10].to_sql("made", engine, index=False, if_exists="delete_rows") == 10
    assert lake.read("made").num_rows == 10


def test_pandas_replaces_a_table_within_a_transaction_of_the_caller(
    lake: lv.Lake, engine: sa.Engine
) -> None:
    frame = pd.DataFrame({"id": [1, 2]})
    frame.to_sql("made", engine, index=False)
    with engine.connect() as connection:
        for end in ("rollback", "commit"):
            with connection.begin() as transaction:
                frame.assign(more=1).to_sql("made", connection, index=False, if_exists="replace")
                assert lake.read("made").schema.names == ["id"]
                getattr(transaction, end)()
            names = ["id"] if end == "rollback" else ["id", "more"]
            assert lake.read("made").schema.names == names
    assert lake.table("made").version == 1


def test_pandas_replaces_a_table_in_autocommit_if_the_engine_says_create_or_replace(
    lake: lv.Lake,
) -> None:
    """In autocommit, DROP has committed before CREATE is sent."""
    options = {"connect_args": {"lake": lake}, "isolation_level": "AUTOCOMMIT"}
    frame = pd.DataFrame({"id": [1, 2]})
    engine = sa.create_engine("lakevilla://", **options, create_or_replace=True)
    frame.to_sql("made", engine, index=False)
    for number in range(2):
        frame.assign(more=number).to_sql("made", engine, index=False, if_exists="replace")
        assert lake.read("made")["more"].to_pylist() == [number, number]
    assert lake.table("made").read(version=1).schema.names == ["id"]
    plain = sa.create_engine("lakevilla://", **options)
    with pytest.raises(sa.exc.ProgrammingError, match="CREATE OR REPLACE TABLE, creates it again"):
        frame.to_sql("made", plain, index=False, if_exists="replace")
    assert "made" not in list(lake)
    lake.register("made")  # the dropped table's data is still there
    assert lake.read("made").num_rows == 2


def test_polars_reads_through_a_connection_a_cursor_and_an_engine(
    connection: dbapi.Connection, engine: sa.Engine
) -> None:
    options = {"parameters": {"most": 10}}
    expected = pl.DataFrame(ORDERS[:10])
    assert pl.read_database(QUERY, connection, execute_options=options).equals(expected)
    assert pl.read_database(QUERY, connection.cursor(), execute_options=options).equals(expected)
    assert pl.read_database(QUERY, engine, execute_options=options).equals(expected)
    assert pl.DataFrame(
        connection.cursor().execute(QUERY, {"most": 10}).fetch_arrow_table()
    ).equals(expected)
    parts = pl.read_database(
        QUERY, connection, execute_options=options, iter_batches=True, batch_size=4
    )
    assert [len(part) for part in parts] == [4, 4, 2]
    empty = pl.read_database(QUERY, connection, execute_options={"parameters": {"most": -1}})
    assert empty.schema == {"id": pl.Int64, "sku": pl.String, "price": pl.Float64}


def test_polars_writes_through_an_engine(lake: lv.Lake, engine: sa.Engine) -> None:
    pl.DataFrame({"a": [1, 2], "b": ["x", None]}).write_database("frames", engine)
    assert lake.read("frames").to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_polars_writes_lists_and_structs_with_their_types(engine: sa.Engine, lake: lv.Lake) -> None:
    frame = pl.DataFrame(
        {"n": [1, 2], "l": [[1, 2], None], "s": [{"a": 1, "b": ["x"]}, None], "d": ["x", None]}
    )
    options = {"dtype": types_of(frame)}
    frame.write_database("made", engine, engine_options=options)
    frame.write_database("made", engine, if_table_exists="append", engine_options=options)
    assert pl.concat([frame, frame]).equals(lake.table("made").to_polars())
    frame.write_database("made", engine, if_table_exists="replace", engine_options=options)
    assert frame.equals(lake.table("made").to_polars())


def test_a_reflected_table_of_structs_is_made_again_with_its_types(
    engine: sa.Engine, lake: lv.Lake
) -> None:
    lake.create_table("deep", [{"n": 1, "s": {"a": 1}, "m": [{"b": "x"}]}])
    found = sa.Table("deep", sa.MetaData(), autoload_with=engine)
    copied = sa.Table("copied", sa.MetaData(), *(sa.Column(c.name, c.type) for c in found.columns))
    with engine.begin() as connection:
        copied.create(connection)
        connection.execute(copied.insert(), [{"n": 2, "s": {"a": 2}, "m": [{"b": "y"}]}])
    assert lake.read("copied").schema.types == lake.read("deep").schema.types
    assert lake.read("copied").to_pylist() == [{"n": 2, "s": {"a": 2}, "m": [{"b": "y"}]}]

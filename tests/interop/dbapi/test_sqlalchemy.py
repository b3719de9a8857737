"""Use lakes through SQLAlchemy: Core, the ORM, reflection."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

import lakevilla as lv
from lakevilla import dbapi


@pytest.fixture(params=["delta", "iceberg"])
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"lakevilla:///{tmp_path}/lake")
    yield engine
    engine.dispose()


class Base(orm.DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customers"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True, autoincrement=False)
    name: orm.Mapped[str]
    orders: orm.Mapped[list[Order]] = orm.relationship(back_populates="customer")


class Order(Base):
    __tablename__ = "orders"
    __table_args__ = {"schema": "sales"}  # noqa: RUF012
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True, autoincrement=False)
    customer_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey(Customer.id))
    customer: orm.Mapped[Customer | None] = orm.relationship(back_populates="orders")


def table(format: str, *columns: sa.Column[Any], name: str = "t", **options: Any) -> sa.Table:
    return sa.Table(name, sa.MetaData(), *columns, lakevilla_format=format, **options)


def lake_of(engine: sa.Engine) -> lv.Lake:
    with engine.connect() as connection:
        return connection.connection.dbapi_connection.lake  # type: ignore[union-attr,no-any-return]


def test_values_of_each_type_are_read_as_they_were_written(engine: sa.Engine, format: str) -> None:
    noon = datetime(2026, 1, 31, 12, 0, 0, 5)
    given: dict[str, tuple[Any, Any]] = {
        "a": (sa.BigInteger, 2**40),
        "b": (sa.Integer, -7),
        "c": (sa.String(20), "it's"),
        "d": (sa.Numeric(10, 2), Decimal("1.50")),
        "e": (sa.Float, 1.1),
        "f": (sa.Boolean, True),
        "g": (sa.LargeBinary, b"\0x"),
        "h": (sa.Date, date(2026, 1, 31)),
        "i": (sa.DateTime, noon),
        "j": (sa.DateTime(timezone=True), noon.replace(tzinfo=UTC)),
        "k": (sa.Uuid, UUID(int=7)),
        "l": (sa.JSON, {"x": [1, None]}),
        "m": (sa.ARRAY(sa.BigInteger), [1, 2]),
        "n": (sa.Text, None),
    }
    t = table(format, *(sa.Column(name, kind) for name, (kind, _) in given.items()))
    row = {name: value for name, (_, value) in given.items()}
    with engine.begin() as connection:
        t.create(connection)
        connection.execute(t.insert(), row)
        connection.execute(t.insert(), [row, dict.fromkeys(row)])
    with engine.connect() as connection:
        found = connection.execute(sa.select(t).order_by(t.c.a.nulls_last())).mappings().all()
        reflected = sa.Table("t", sa.MetaData(), autoload_with=connection)
    assert [dict(one) for one in found[:2]] == [row, row]
    assert set(found[2].values()) <= {None}
    kinds = [type(column.type).__name__ for column in reflected.columns]
    assert kinds[:6] == ["BIGINT", "INTEGER", "VARCHAR", "NUMERIC", "DOUBLE", "BOOLEAN"]
    assert lake_of(engine).table("t").format == format


def test_a_table_in_a_schema_is_written_queried_and_inspected(
    engine: sa.Engine, format: str
) -> None:
    t = table(format, sa.Column("id", sa.BigInteger, nullable=False), sa.Column("n", sa.Integer))
    t.schema = "a/b"
    with engine.begin() as connection:
        t.create(connection)
        rows = [{"id": i, "n": i % 3} for i in range(9)]
        assert connection.execute(t.insert(), rows).rowcount == 9
        assert connection.execute(t.update().where(t.c.n == 0).values(n=t.c.n + 10)).rowcount == 3
        assert connection.execute(t.delete().where(t.c.id.in_([1, 2]))).rowcount == 2
        connection.execute(t.insert().from_select(["id", "n"], sa.select(t.c.id + 100, t.c.n)))
        grouped = sa.select(t.c.n, sa.func.count()).group_by(t.c.n).order_by(t.c.n.desc()).limit(2)
        assert connection.execute(grouped).all() == [(10, 6), (2, 4)]
        some = sa.select(t).where(t.c.n == 10).cte("some")
        connection.execute(
            t.insert().from_select(["id", "n"], sa.select(some.c.id + 1000, some.c.n))
        )
        assert connection.scalar(sa.select(sa.func.count()).where(t.c.id >= 1000)) == 6
    inspector = sa.inspect(engine)
    assert inspector.get_schema_names() == ["a/b", "main"]
    assert inspector.get_table_names(schema="a/b") == ["t"]
    assert inspector.has_table("t", schema="a/b")
    assert not inspector.has_table("t")
    assert [one["nullable"] for one in inspector.get_columns("t", schema="a/b")] == [False, True]
    with pytest.raises(sa.exc.NoSuchTableError):
        inspector.get_columns("nope")
    t.drop(engine)
    assert not sa.inspect(engine).has_table("t", schema="a/b")


def test_a_column_whose_name_is_a_keyword_of_sql_is_updated_and_queried(engine: sa.Engine) -> None:
    table = sa.Table("w", sa.MetaData(), sa.Column("id", sa.BigInteger), sa.Column("from", sa.Text))
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(table.insert(), [{"id": 1, "from": "a"}, {"id": 2, "from": "b"}])
        connection.execute(table.update().where(table.c["from"] == "b").values({"from": "c"}))
        found = connection.execute(sa.select(table.c["from"]).order_by(table.c.id)).scalars()
        assert list(found) == ["a", "c"]


def test_a_quotient_of_decimals_is_returned_as_a_decimal(engine: sa.Engine) -> None:
    price = sa.literal(Decimal("5.52"), sa.Numeric(10, 2))
    with engine.connect() as connection:
        divided = connection.scalar(
            sa.select(price / sa.literal(Decimal("2.4"), sa.Numeric(10, 2)))
        )
        assert (divided, type(divided)) == (Decimal("2.3"), Decimal)
        assert connection.scalar(sa.select(sa.cast(price, sa.Float))) == 5.52


def test_comments_are_kept_and_reported(engine: sa.Engine, format: str) -> None:
    columns = sa.Column("a", sa.Integer, comment="it's a number"), sa.Column("b", sa.Integer)
    t = table(format, *columns, name="d/t", comment="what 'it' is")
    t.create(engine)
    found = sa.Table("t", sa.MetaData(), schema="d", autoload_with=engine)
    if format == "delta":
        assert [column.comment for column in found.columns] == ["it's a number", None]
    assert found.comment == "what 'it' is"
    with engine.begin() as connection:
        connection.execute(sa.schema.SetTableComment(sa.Table("d/t", sa.MetaData(), comment="x")))
        assert sa.inspect(connection).get_table_comment("t", schema="d") == {"text": "x"}


@pytest.mark.filterwarnings("ignore:.*FOREIGN KEY:lakevilla.errors.LakeVillaWarning")
def test_objects_are_mapped_by_the_orm(engine: sa.Engine) -> None:
    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)  # create_all leaves existing tables unchanged
    with orm.Session(engine) as session:
        session.add(Customer(id=1, name="Ann", orders=[Order(id=1), Order(id=2)]))
        session.commit()
        ann = session.scalars(sa.select(Customer).join(Order).where(Order.id == 2)).one()
        assert [order.id for order in ann.orders] == [1, 2]
        ann.name = "Anna"
        session.delete(ann.orders[0])
        session.commit()
        assert session.get(Order, 1) is None
        session.add(Customer(id=2, name="Ben"))
        session.rollback()
    assert lake_of(engine).read("customers").to_pylist() == [{"id": 1, "name": "Anna"}]
    assert lake_of(engine).read("sales/orders").to_pylist() == [{"id": 2, "customer_id": 1}]


def test_a_conflict_is_an_operational_error_that_is_marked_as_retryable(engine: sa.Engine) -> None:
    t = table("delta", sa.Column("n", sa.Integer))
    t.create(engine)
    with engine.begin() as connection:
        connection.execute(t.insert(), {"n": 1})
    with pytest.raises(sa.exc.OperationalError) as caught, engine.begin() as connection:
        assert connection.scalar(sa.select(t.c.n)) == 1
        connection.execute(t.insert(), {"n": 2})
        lake_of(engine).run(lambda txn: txn.update("t", {"n": 5}, where="true"))
    assert isinstance(caught.value.orig, dbapi.TransactionConflict)
    assert caught.value.orig.retryable
    assert lake_of(engine).read("t").to_pylist() == [{"n": 5}]


def test_core_counts_no_rows_unless_its_caller_reads_the_count(engine: sa.Engine) -> None:
    """An unread count is no observed read, so the update is redone after another
    client's commit.
    """
    t = table("delta", sa.Column("n", sa.Integer))
    t.create(engine)
    for looks in (False, True):
        with engine.connect() as connection:
            result = connection.execute(t.update().values(n=t.c.n + 1))
            assert not looks or result.rowcount >= 0
            lake_of(engine).run(lambda txn: txn.append("t", [{"n": 1}]))
            if looks:
                with pytest.raises(sa.exc.OperationalError):
                    connection.commit()
            else:
                connection.commit()
    assert sorted(lake_of(engine).read("t")["n"].to_pylist()) == [1, 2]


def test_isolation_levels_and_autocommit_are_set_by_execution_options(engine: sa.Engine) -> None:
    t = table("delta", sa.Column("n", sa.Integer))
    t.create(engine)
    with engine.connect() as connection:
        assert connection.get_isolation_level() == "SERIALIZABLE"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(t.insert(), {"n": 1})
        assert lake_of(engine).read("t").num_rows == 1
        connection.rollback()
    with engine.connect().execution_options(isolation_level="SNAPSHOT") as connection:
        assert connection.get_isolation_level() == "SNAPSHOT"  # type: ignore[comparison-overlap]
    with engine.connect() as connection:
        connection.execute(t.insert(), {"n": 2})
    assert lake_of(engine).read("t").num_rows == 1
    with pytest.raises(sa.exc.ArgumentError, match="SNAPSHOT"):
        engine.connect().execution_options(isolation_level="READ COMMITTED")


def test_an_insert_without_a_primary_key_is_refused(engine: sa.Engine) -> None:
    t = table("delta", sa.Column("id", sa.Integer, primary_key=True), sa.Column("n", sa.Integer))
    t.create(engine)
    with pytest.raises(sa.exc.IntegrityError, match="NOT NULL"), engine.begin() as connection:
        connection.execute(t.insert(), {"n": 2})


def test_check_constraints_are_reflected(engine: sa.Engine, format: str) -> None:
    made = sa.MetaData()
    sa.Table(
        "t",
        made,
        sa.Column("id", sa.BigInteger),
        sa.CheckConstraint("id > 0", name="positive"),
        lakevilla_format=format,
    )
    sa.Table("u", made, sa.Column("id", sa.BigInteger), lakevilla_format=format)
    if format == "iceberg":  # Iceberg has no CHECK
        made.tables["t"].constraints.clear()
    made.create_all(engine)
    looked = sa.inspect(engine)
    checks = [{"name": "positive", "sqltext": "id > 0"}] if format == "delta" else []
    assert looked.get_check_constraints("t") == checks
    assert looked.get_multi_check_constraints() == {(None, "t"): checks, (None, "u"): []}
    with pytest.raises(sa.exc.NoSuchTableError):
        looked.get_check_constraints("nothing")
    again = sa.MetaData()
    again.reflect(engine)
    assert set(again.tables) == {"t", "u"}


def test_a_nested_transaction_that_fails_is_undone_alone(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (id BIGINT)")
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
        with pytest.raises(sa.exc.ProgrammingError), connection.begin_nested():
            connection.exec_driver_sql("INSERT INTO t VALUES (2)")
            connection.exec_driver_sql("SELECT * FROM nothing")
        with connection.begin_nested():
            connection.exec_driver_sql("INSERT INTO t VALUES (3)")
    with engine.connect() as connection:
        assert connection.scalars(sa.text("SELECT id FROM t ORDER BY id")).all() == [1, 3]


def test_schemas_are_created_listed_and_dropped(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema("lab", if_not_exists=True))
        connection.execute(sa.schema.CreateSchema("empty"))
    assert sa.inspect(engine).get_schema_names() == ["empty", "lab", "main"]
    assert sa.inspect(engine).has_schema("lab")
    made = sa.MetaData(schema="lab")
    sa.Table("t", made, sa.Column("id", sa.BigInteger))
    made.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sa.schema.DropSchema("lab", cascade=True))
        connection.execute(sa.schema.DropSchema("empty", if_exists=True))
    assert sa.inspect(engine).get_schema_names() == ["main"]


@pytest.mark.parametrize("by", ["prefixes", "create_or_replace"])
def test_all_tables_are_dropped_and_created_again(tmp_path: Path, format: str, by: str) -> None:
    replacing = by == "create_or_replace"
    engine = sa.create_engine(f"lakevilla:///{tmp_path}/lake", create_or_replace=replacing)
    metadata = sa.MetaData()
    options: dict[str, Any] = {} if replacing else {"prefixes": ["OR REPLACE"]}
    tables = [
        sa.Table(
            name,
            metadata,
            sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("name", sa.String),
            lakevilla_format=format,
            schema=schema,
            **options,
        )
        for name, schema in (("a", None), ("b", "sales"))
    ]
    for number in range(3):
        metadata.drop_all(engine)
        metadata.create_all(engine)
        metadata.create_all(engine)  # the tables exist: nothing is replaced
        with engine.begin() as connection:
            for made in tables:
                connection.execute(made.insert(), [{"id": number, "name": "x"}])
                assert connection.execute(sa.select(made.c.id)).scalars().all() == [number]
        metadata.create_all(engine)
    lake = lake_of(engine)
    assert sorted(lake) == ["a", "sales/b"]
    assert lake.read("sales/b")["id"].to_pylist() == [2]
    assert lake.doctor().ok


def test_a_dropped_table_is_not_created_again_without_create_or_replace(
    engine: sa.Engine, format: str
) -> None:
    made = table(format, sa.Column("id", sa.Integer))
    made.create(engine)
    made.drop(engine)
    with pytest.raises(sa.exc.ProgrammingError, match="CREATE OR REPLACE TABLE, creates it again"):
        made.create(engine)

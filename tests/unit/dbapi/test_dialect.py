"""The SQLAlchemy dialect: URLs, the SQL that it writes, and the types that it reads back."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.schema import CreateIndex, CreateTable

import lakevilla as lv
from lakevilla.dbapi.sqlalchemy import LakeVillaDialect, Nested
from lakevilla.dbapi.sqlalchemy.dialect import type_of
from lakevilla.dbapi.sqlalchemy.urls import connect_arguments

ENTRY_POINTS = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
    "entry-points"
]["sqlalchemy.dialects"]


@pytest.fixture(autouse=True)
def _registered() -> None:
    """Register the entry points of pyproject.toml; the installed ones may be older."""
    for name, place in ENTRY_POINTS.items():
        registry.register(name, *place.split(":"))


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_each_entry_point_loads_the_dialect(name: str) -> None:
    module, _, attribute = ENTRY_POINTS[name].partition(":")
    assert getattr(importlib.import_module(module), attribute) is LakeVillaDialect
    url = sa.engine.make_url(f"{name.replace('.', '+')}://bucket/prefix")
    assert url.get_dialect() is LakeVillaDialect


@pytest.mark.parametrize(
    ("url", "arguments"),
    [
        ("lakevilla:///warehouse", {"lake": "warehouse"}),
        ("lakevilla:////srv/warehouse", {"lake": "/srv/warehouse"}),
        ("lakevilla+dbapi:///warehouse", {"lake": "warehouse"}),
        ("lakevilla://", {}),
        ("lakevilla+s3://bucket/some/prefix", {"lake": "s3://bucket/some/prefix"}),
        ("lakevilla+s3://bucket", {"lake": "s3://bucket"}),
        ("lakevilla+memory://name", {"lake": "memory://name"}),
        ("lakevilla+file:///srv/lake", {"lake": "file:///srv/lake"}),
        (
            "lakevilla+abfss://box@account.dfs.core.windows.net/lake",
            {"lake": "abfss://box@account.dfs.core.windows.net/lake"},
        ),
        (
            "lakevilla:///w?max_rows=5&max_bytes=100&timeout_seconds=0.5",
            {"lake": "w", "max_rows": 5, "max_bytes": 100, "timeout_seconds": 0.5},
        ),
        (
            "lakevilla+s3://b/p?aws_region=eu-west-1&isolation=snapshot&autocommit=true",
            {
                "lake": "s3://b/p",
                "storage_options": {"aws_region": "eu-west-1"},
                "isolation": "snapshot",
                "autocommit": True,
            },
        ),
    ],
)
def test_a_url_is_parsed_into_the_root_of_a_lake_and_options(
    url: str, arguments: dict[str, Any]
) -> None:
    assert connect_arguments(sa.engine.make_url(url)) == arguments


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("lakevilla://warehouse/x", "names a host"),
        ("lakevilla+s3:///prefix", "names no bucket"),
        ("lakevilla+s3://key:secret@bucket/prefix", "no password"),
        ("lakevilla:///w?autocommit=maybe", "true or false"),
        ("lakevilla:///w?a=1&a=2", "twice"),
    ],
)
def test_a_url_without_a_lake_is_refused_without_repeating_secrets(url: str, message: str) -> None:
    with pytest.raises(sa.exc.ArgumentError, match=message) as caught:
        connect_arguments(sa.engine.make_url(url))
    assert "secret" not in str(caught.value)


def test_an_engine_without_a_lake_is_refused_and_the_error_shows_a_url() -> None:
    with pytest.raises(sa.exc.ArgumentError, match="lakevilla:///path"):
        sa.create_engine("lakevilla://").connect()


def compiled(statement: Any) -> str:
    return " ".join(str(statement.compile(dialect=LakeVillaDialect())).split())


STOCK = sa.Table(
    "stock",
    sa.MetaData(),
    sa.Column("sku", sa.String(20), primary_key=True, comment="it's a key"),
    sa.Column("qty", sa.Integer, sa.CheckConstraint("qty >= 0")),
    sa.Column("price", sa.Numeric(10, 2)),
    sa.Column("sum", sa.Numeric),
    sa.Column("size", sa.Float),
    sa.Column("small", sa.REAL),
    sa.Column("at", sa.DateTime),
    sa.Column("moment", sa.DateTime(timezone=True)),
    sa.Column("bytes", sa.LargeBinary),
    sa.Column("key", sa.Uuid),
    sa.Column("any", sa.JSON),
    sa.Column("list", sa.ARRAY(sa.BigInteger, dimensions=2)),
    schema="a/b",
    lakevilla_format="delta",
    lakevilla_partition_by=["sku", "day(at)"],
    lakevilla_properties={"delta.appendOnly": "true"},
    comment="goods",
)


def test_create_table_writes_the_parts_of_a_definition_that_a_lake_stores() -> None:
    assert compiled(CreateTable(STOCK)) == (
        """CREATE TABLE "a/b".stock ( sku VARCHAR NOT NULL COMMENT 'it''s a key', """
        "qty INTEGER CHECK (qty >= 0), price DECIMAL(10, 2), sum DECIMAL(38, 10), size DOUBLE, "
        'small FLOAT, "at" TIMESTAMP WITHOUT TIME ZONE, moment TIMESTAMP WITH TIME ZONE, '
        'bytes BLOB, key VARCHAR, "any" VARCHAR, list BIGINT[][] ) '
        "USING delta PARTITIONED BY (sku, day(at)) TBLPROPERTIES "
        "('delta.appendOnly' = 'true', 'comment' = 'goods')"
    )


def test_unenforced_constraints_are_omitted_with_a_warning_and_indexes_silently() -> None:
    orders = sa.Table(
        "orders",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("sku", sa.ForeignKey(STOCK.c.sku)),
        sa.Column("code", sa.String, unique=True),
    )
    with pytest.warns(lv.LakeVillaWarning) as told:
        text = compiled(CreateTable(orders))
    assert text == "CREATE TABLE orders ( id INTEGER NOT NULL, sku VARCHAR, code VARCHAR )"
    messages = [str(one.message) for one in told]
    assert any("FOREIGN KEY (sku) is left out" in one for one in messages)
    assert any("UNIQUE (code) is left out" in one for one in messages)
    index = sa.Index("by_sku", orders.c.sku)
    assert "INDEX" not in compiled(CreateIndex(index))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (sa.Column("id", sa.Integer, sa.Identity()), "no autoincrement"),
        (sa.Column("id", sa.Integer, sa.Computed("1")), "computes no columns"),
        (sa.Column("id", sa.String(collation="de_DE")), "byte by byte"),
    ],
)
def test_column_features_that_a_lake_lacks_are_refused(column: Any, message: str) -> None:
    with pytest.raises(sa.exc.CompileError, match=message):
        compiled(CreateTable(sa.Table("t", sa.MetaData(), column)))


def test_update_and_delete_refer_to_their_table_by_the_last_part_of_its_name() -> None:
    update = STOCK.update().where(STOCK.c.sku == "tea").values(qty=STOCK.c.qty - 1)
    assert compiled(update) == (
        'UPDATE "a/b".stock SET qty=(stock.qty - :qty_1) WHERE stock.sku = :sku_1'
    )
    assert compiled(STOCK.delete().where(STOCK.c.qty == 0)) == (
        'DELETE FROM "a/b".stock WHERE stock.qty = :qty_1'
    )
    assert compiled(sa.select(STOCK.c.qty)) == 'SELECT "a/b".stock.qty FROM "a/b".stock'
    main = sa.table("t", sa.column("a"), schema="main")
    assert compiled(sa.select(main)) == "SELECT t_1.a FROM t AS t_1"


def test_queries_are_written_in_duckdbs_sql() -> None:
    a = sa.column("a")
    assert compiled(sa.select(a).offset(2)) == "SELECT a OFFSET :param_1"
    assert compiled(sa.select(a).limit(1).with_for_update()) == "SELECT a LIMIT :param_1"
    assert "regexp_matches(a, :a_1)" in compiled(sa.select(a.regexp_match("x")))
    assert "NOT regexp_matches(a, :a_1, 'i')" in compiled(sa.select(~a.regexp_match("x", "i")))
    assert "regexp_replace(a, :a_1, :a_2)" in compiled(sa.select(a.regexp_replace("x", "y")))
    with pytest.raises(sa.exc.CompileError, match="WITH TIES"):
        compiled(sa.select(a).fetch(1, with_ties=True))


@pytest.mark.parametrize("name", ["a b", "7up", "größe", "per%", "a.b", "(x)", "_x", "x:y"])
def test_a_column_of_any_name_gets_a_valid_parameter_name(name: str) -> None:
    statement = sa.table("t", sa.column(name)).insert().values({name: 1})
    made = statement.compile(dialect=LakeVillaDialect())
    (parameter,) = made.construct_params(escape_names=True)
    assert parameter.isidentifier()
    assert parameter[0] == "_" or (parameter[0].isascii() and parameter[0].isalpha())
    assert f":{parameter})" in str(made)


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("BIGINT", sa.BIGINT()),
        ("DECIMAL(10,2)", sa.NUMERIC(10, 2)),
        ("VARCHAR", sa.VARCHAR()),
        ("TIMESTAMP", sa.TIMESTAMP()),
        ("TIMESTAMP WITH TIME ZONE", sa.TIMESTAMP(timezone=True)),
        ("BIGINT[]", sa.ARRAY(sa.BIGINT(), dimensions=1)),
        ("VARCHAR[][]", sa.ARRAY(sa.VARCHAR(), dimensions=2)),
        ("STRUCT(a BIGINT)", Nested("STRUCT(a BIGINT)")),
        ("MAP(VARCHAR, BIGINT)[]", Nested("MAP(VARCHAR, BIGINT)[]")),
    ],
)
def test_a_type_name_of_a_lake_becomes_the_sqlalchemy_type(name: str, type_: Any) -> None:
    assert repr(type_of(name)) == repr(type_)

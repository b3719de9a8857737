"""Paths over the catalog: each example of the design, and the refused paths."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.sql.catalog import SCHEMAS
from tests.support.places import Place

TYPES = pa.schema([("id", pa.int64()), ("region", pa.string()), ("qty", pa.int64())])


def rows(*numbers: int, region: str = "EU") -> pa.Table:
    found = [{"id": number, "region": region, "qty": number * 10} for number in numbers]
    return pa.Table.from_pylist(found, TYPES)


@pytest.fixture
def lake(quick_place: Place) -> lv.Lake:
    lake = quick_place.connect()
    with lake.transaction() as txn:
        for name in ("sales/orders", "sales/items", "retail/orders", "retail/eu/orders", "plain"):
            parts = ["region"] if name.endswith("orders") else []
            txn.create_table(name, rows(1, 2), partition_by=parts)
        txn.create_table("sales/none", TYPES)
    lake.run(lambda txn: txn.append("sales/orders", rows(3, region="Asia")))
    lake.run(lambda txn: txn.append("retail/orders", rows(4)))
    return lake


def ask(lake: lv.Lake, path: str, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.query(path, **options).to_pylist()
    return found


def names(lake: lv.Lake, path: str) -> list[str]:
    return [row["name"] for row in ask(lake, path)]


def test_a_path_finds_files_of_one_partition(lake: lv.Lake) -> None:
    (file,) = ask(lake, "/sales/*[name = 'orders']/files[partition.region = 'Asia']")
    assert list(file) == SCHEMAS["files"].names
    assert (file["table"], file["rows"]) == ("sales/orders", 1)


def test_a_path_finds_commits_to_tables_below_a_directory(lake: lv.Lake) -> None:
    path = "/retail/**/commits[timestamp > timestamp '2020-01-01T00:00:00Z']"
    found = ask(lake, path)
    assert [(row["table"], row["version"]) for row in found] == [
        ("retail/eu/orders", 1),
        ("retail/orders", 1),
        ("retail/orders", 3),
    ]
    assert not ask(lake, path.replace("2020", "2220"))
    assert [row["version"] for row in ask(lake, "/retail/**/commits[-1]")] == [1, 3]


def test_a_path_finds_statistics_of_a_column_in_some_files(lake: lv.Lake) -> None:
    path = "/sales/orders/files[size_bytes > 1e8]/columns[name = 'qty']"
    assert not ask(lake, path)
    found = ask(lake, path.replace("1e8", "1e1"))
    assert sorted((row["name"], row["min"], row["max"]) for row in found) == [
        ("qty", "10", "20"),
        ("qty", "30", "30"),
    ]
    assert list(found[0]) == ["table", "path", "name", "type", "min", "max", "nulls"]
    every = ask(lake, "/sales/orders/statistics[column = 'qty']")
    assert sorted(row["max"] for row in every) == ["20", "30"]


def test_a_path_finds_files_of_the_snapshot_before_the_newest(lake: lv.Lake) -> None:
    found = ask(lake, "/retail/orders/snapshots[-2]/files")
    assert [(row["table"], row["version"], row["rows"]) for row in found] == [
        ("retail/orders", 1, 2)
    ]
    newest = ask(lake, "/retail/orders/snapshots[-1]/files")
    assert sum(row["rows"] for row in newest) == 3
    assert [row["version"] for row in ask(lake, "/retail/orders/snapshots")] == [1, 3]


def test_a_path_finds_tables_by_conditions_on_names_and_sizes(lake: lv.Lake) -> None:
    assert names(lake, "/*/*[rows = 0]") == ["sales/none"]
    assert names(lake, "/*[name >= 'p' AND name < 'q']") == ["plain"]
    assert names(lake, "/sales/*[rows > 0][-1]") == ["sales/orders"]
    assert names(lake, "/**[name LIKE '%orders'][format <> '']") == [
        "retail/eu/orders",
        "retail/orders",
        "sales/orders",
    ]
    assert names(lake, "/*[name = 'retail']/*/*") == ["retail/eu/orders"]
    assert names(lake, "/retail/**/orders") == ["retail/eu/orders"]
    assert names(lake, '/"sales"/items') == ["sales/items"]
    assert [row["name"] for row in ask(lake, "/sales/items/columns[position > 0]")] == [
        "region",
        "qty",
    ]


def test_the_path_of_the_root_lists_all_tables(lake: lv.Lake) -> None:
    listed = lake.query("/")
    assert listed.equals(lake.query("/**"))
    assert listed["name"].to_pylist() == sorted(table.name for table in lake.tables())


def test_a_path_can_be_evaluated_in_a_past_version_a_tag_or_a_branch(lake: lv.Lake) -> None:
    lake.tag("first", 1)
    lake.branch("etl")
    lake.on("etl").run(lambda txn: txn.append("plain", rows(9)))
    for at, total in ((None, 2), (1, 2), ("first", 2), ("etl", 3), ("main", 2)):
        files = ask(lake, "/plain/files", at=at)
        assert sum(row["rows"] for row in files) == total
    assert len(ask(lake, "/sales/orders/files", at=1)) == 1
    assert len(ask(lake, "/sales/orders/files", at=lake.history()[0].timestamp)) == 2
    with pytest.raises(lv.RefNotFound):
        lake.query("/plain", at="nosuch")
    with pytest.raises(lv.VersionNotFound):
        lake.query("/plain", at=99)
    with pytest.raises(lv.InvalidOperation, match="at is"):
        lake.query("/plain", at=True)


def test_predicates_narrow_each_level_of_the_hierarchy(lake: lv.Lake) -> None:
    assert names(lake, "/[name LIKE 'sal%']/*[rows > 2]") == ["sales/orders"]
    assert names(lake, "/[name LIKE 'retail%']/[name < 'f']/orders[rows >= 2]") == [
        "retail/eu/orders"
    ]
    path = "/[name = 'sales']/orders[rows > 2]/partitions[files = 1]/files[rows = 1]/columns"
    assert [row["name"] for row in ask(lake, f"{path}[nulls = 0][name = 'qty']")] == ["qty"]
    assert not ask(lake, path.replace("rows > 2", "rows > 3"))


def test_partitions_are_a_step_between_tables_and_files(lake: lv.Lake) -> None:
    found = ask(lake, "/sales/orders/partitions")
    assert [(row["name"], row["files"], row["rows"]) for row in found] == [
        ("region=Asia", 1, 1),
        ("region=EU", 1, 2),
    ]
    assert list(found[0]) == SCHEMAS["partitions"].names
    (asia,) = ask(lake, "/sales/orders/partitions/region=Asia")
    assert asia == found[0]
    (file,) = ask(lake, "/sales/orders/partitions[partition.region = 'Asia']/files")
    assert (file["rows"], file["size_bytes"]) == (1, asia["bytes"])
    bounds = ask(lake, '/sales/orders/partitions/"region=EU"/files/columns/qty')
    assert [(row["min"], row["max"]) for row in bounds] == [("10", "20")]
    (whole,) = ask(lake, "/plain/partitions")
    assert (whole["name"], whole["partition"], whole["rows"]) == ("", [], 2)
    assert not ask(lake, "/sales/none/partitions")
    older = ask(lake, "/sales/orders/snapshots/1/partitions/*")
    assert [(row["version"], row["name"]) for row in older] == [(1, "region=EU")]


def test_bounds_are_compared_as_values_of_their_columns(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        lake.create_table(
            "t",
            {
                "n": [5, 40],
                "x": [0.5, 1e9],
                "text": ["a", "z"],
                "day": [date(2024, 1, 1), date(2024, 5, 1)],
                "at": [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 5, 1, tzinfo=UTC)],
            },
        )

        def found(condition: str) -> list[str]:
            return [row["name"] for row in ask(lake, f"/t/files/columns[{condition}]")]

        assert found("max > 6") == ["n", "x"]  # as text, '40' would be below '6'
        assert found("max > 6 AND name = 'n'") == ["n"]
        assert found("min = 'a'") == ["text"]
        assert found("max > date '2024-04-30'")[:1] == ["day"]
        assert found("min < timestamp '2024-01-02T00:00:00Z'")[-1:] == ["at"]
        assert found("max IS NOT NULL") == ["n", "x", "text", "day", "at"]
        assert found("type = 'long' AND max > 100") == []
        statistics = ask(lake, "/t/statistics[max >= 40 AND type = 'long']")
        assert [row["column"] for row in statistics] == ["n"]


def test_bounds_of_decimals_are_those_in_the_log_with_all_digits(quick_place: Place) -> None:
    values = [Decimal("2.5"), Decimal("12345678901234567890.123456789")]
    with quick_place.connect() as lake:
        lake.create_table("t", pa.table({"d": pa.array(values, pa.decimal128(38, 9))}))
        (row,) = ask(lake, "/t/statistics")
        assert (Decimal(row["min"]), Decimal(row["max"])) == tuple(values)
        assert ask(lake, "/t/files/columns[max > 12345678901234567890]")
        assert ask(lake, f"/t/files/columns[max = {values[1]} AND min = 2.5]")
        assert not ask(lake, f"/t/files/columns[max > {values[1]}]")


def test_a_star_below_a_table_is_any_member_of_the_step_above(lake: lv.Lake) -> None:
    assert ask(lake, "/sales/orders/files/*") == ask(lake, "/sales/orders/files")
    assert ask(lake, "/sales/*/columns/*[position = 0]") == ask(
        lake, "/sales/*/columns[position = 0]"
    )
    assert [row["table"] for row in ask(lake, "/**/columns/qty")] == [
        table.name for table in lake.tables()
    ]
    newest = ask(lake, "/sales/orders/files[rows > 0]/*[rows = 1]/columns/*[name = 'id']")
    assert [row["max"] for row in newest] == ["3"]
    path = ask(lake, "/plain/files")[0]["path"]
    assert [row["path"] for row in ask(lake, f'/plain/files/"{path}"')] == [path]
    assert not ask(lake, "/**/columns/nosuch")  # below a star nothing need be there


def test_a_member_that_is_there_and_that_nothing_is_known_of_selects_nothing(
    lake: lv.Lake,
) -> None:
    for path in (
        "/sales/none/files/columns/id",  # a table without files
        "/sales/none/statistics/id",
        "/sales/orders/files[rows > 100]/columns/id",
        "/sales/orders/partitions[rows > 100]/files/statistics/id",
    ):
        assert not ask(lake, path), path
    lake.query("/sales/orders/files/columns/region")  # in Delta nothing is known of a partition
    with pytest.raises(lv.InvalidOperation, match=r"'regoin' .did you mean 'region'"):
        lake.query("/sales/orders/files/columns/regoin")


def test_a_member_below_snapshots_has_to_be_there_in_one_of_them(lake: lv.Lake) -> None:
    lake.run(lambda txn: txn.alter("sales/orders", add_columns={"added": "long"}))
    for path in (
        "/sales/orders/snapshots/columns/added",
        "/sales/orders/snapshots/*/columns/added",
    ):
        assert [row["version"] for row in ask(lake, path)] == [4]
    asia = ask(lake, "/sales/orders/snapshots/*/partitions/region=Asia")
    assert [row["version"] for row in asia] == [2, 4]
    for path in ("snapshots/columns/adde", "snapshots/1/columns/added"):
        with pytest.raises(lv.InvalidOperation, match="no member 'adde"):
            lake.query(f"/sales/orders/{path}")


def test_sql_over_the_catalog_tables_asks_what_a_path_asks(lake: lv.Lake) -> None:
    pairs = {
        "/sales/*[rows > 0]": "SELECT * FROM lakevilla_tables WHERE starts_with(name, 'sales/') "
        "AND rows > 0 ORDER BY name",
        "/**/partitions[partition.region = 'Asia']": "SELECT * FROM lakevilla_partitions "
        "WHERE partition['region'] = 'Asia' ORDER BY \"table\", name",
        "/sales/orders/partitions[files > 0 AND rows > 1]": "SELECT * FROM lakevilla_partitions "
        "WHERE \"table\" = 'sales/orders' AND files > 0 AND rows > 1",
        "/sales/orders/statistics[max > 15 AND type = 'long']": "SELECT * FROM "
        "lakevilla_statistics WHERE \"table\" = 'sales/orders' AND type = 'long' "
        "AND TRY_CAST(max AS BIGINT) > 15",
        "/sales/*/columns/qty": "SELECT * FROM lakevilla_columns "
        "WHERE starts_with(\"table\", 'sales/') AND name = 'qty'",
    }
    for path, sql in pairs.items():
        by_path, by_sql = lake.query(path), lake.sql(sql)
        assert by_path.num_rows > 0
        assert by_path.to_pylist() == by_sql.to_pylist(), path


def test_names_in_quotes_may_have_any_characters(lake: lv.Lake) -> None:
    lake.create_table("odd/a b[c]", TYPES)
    lake.rename_table("odd/a b[c]", 'odd/it\'s "it"')
    assert names(lake, '/odd/"it\'s ""it"""') == ['odd/it\'s "it"']
    assert names(lake, "/odd/*[name = 'it''s \"it\"']") == ['odd/it\'s "it"']


@pytest.mark.parametrize("quick_place", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "/sales/orders/fils",
            r"mean 'files'.*snapshots, files, partitions, columns, statistics, commits",
        ),
        ("/sales/orders/files/rows", "columns, statistics"),
        ("/sales/orders/columns/qtty", r"no member 'qtty' .did you mean 'qty'.*id, region, qty"),
        ("/sales/orders/columns/qty/min", "last step"),
        ("/sales/orders/files/colums", "did you mean 'columns'"),
        ('/sales/orders/files/"no.parquet"', "no member 'no.parquet'"),
        ("/sales/orders/partitions/region=Asien", "did you mean 'region=Asia'"),
        ("/sales/orders/partitions/Asia", "there are files"),
        ("/sales/orders/partitions[regoin = 'Asia']", "partition"),
        ("/sales/orders/snapshots/99", "no member '99'"),
        ("/sales/*/fils", "did you mean 'files'"),
        ("/sales/orders/*", "snapshots, files"),
        ("/sales/orders[]", r"\[\] is empty"),
        ("/sales/orders[ ]/files", r"\[\] is empty"),
        ("/sales/orders[name = 'it\\'s']", "not closed"),
        ("/sales/orders/files/columns[max > 'x' AND max > 1]", "max"),
        ("/sales/orders/commits/files", "last step"),
        ("/sales/orders/files[nosuch = 1]", "size_bytes"),
        ("/sales/orders/files[partition.nosuch = 'x']", "region"),
        ("/sales/*[nosuch = 1]", "log_version"),
        ("/sales[rows = 1]/orders", "name"),
        ("/sales/orders/files[rows]", "boolean"),
        ("/sales/orders/files[rows =]", r"\[rows =\]"),
        ("/sales[0]/orders", "directory"),
        ("/files", "names no table"),
        ("sales/orders", "must begin with"),
        ("", "must begin with"),
        ("/sales//orders", "a step must be"),
        ("//", "a step must be"),
        ("/sales/orders/", "a step must be"),
        ("/sales orders", "the end of the path must follow"),
        ("/sales/orders/partitions/region=Über", 'needs quotes, "a b"'),
        ("/sales/orders[", "not closed"),
        ("/sales/orders[rows > 0", "not closed"),
        ("/sales/orders[name = 'x]", "not closed"),
        ('/"sales', "quote"),
        ('/""', "quote"),
        ('/"sales/orders"', 'write /"sales"/"orders", each'),
        ('/*/"sales/orders"/files', "has no '/'"),
        (5, "text"),
        (None, "text"),
    ],
)
def test_invalid_paths_are_refused_with_the_reason(lake: lv.Lake, path: Any, message: str) -> None:
    with pytest.raises(lv.InvalidOperation, match=message):
        lake.query(path)


def test_a_path_to_a_missing_table_raises_table_not_found(lake: lv.Lake) -> None:
    with pytest.raises(lv.TableNotFound, match="sales/nothing"):
        lake.query("/sales/nothing/files")
    found = lake.query("/nothing/*/files")
    assert found.num_rows == 0
    assert found.schema.names == SCHEMAS["files"].names

"""``spark.read.format("lakevilla")``: a table in one state, with the rows other readers see."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceReader

import lakevilla as lv
from lakevilla.api.spark.source.classes import data_source
from tests.fixtures.s3 import S3Server
from tests.support.places import Place
from tests.support.tables import accounts, contents, in_order

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
Rows = list[dict[str, Any]]

MAKE = {
    "vectors": [
        "CREATE TABLE {t} (id BIGINT, s STRING) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "INSERT INTO {t} SELECT id, CAST(id AS STRING) FROM range(50)",
        "DELETE FROM {t} WHERE id % 7 = 3",
    ],
    "mapped": [
        "CREATE TABLE {t} (id BIGINT, old STRING, gone INT) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "INSERT INTO {t} VALUES (1, 'a', 1), (2, NULL, 2)",
        "ALTER TABLE {t} RENAME COLUMN old TO `new, odd ;name`",
        "ALTER TABLE {t} DROP COLUMN gone",
        "INSERT INTO {t} VALUES (3, 'c')",
    ],
    "parts": [
        "CREATE TABLE {t} (id BIGINT, d DATE, ts TIMESTAMP, s STRING) USING delta "
        "PARTITIONED BY (d, ts, s)",
        "INSERT INTO {t} VALUES (1, DATE'2024-02-29', TIMESTAMP'2024-02-29 12:34:56.789012Z', 'a'),"
        "(2, NULL, NULL, NULL), (3, DATE'1969-12-31', TIMESTAMP'1970-01-01 00:00:00Z', 'ä/b c%d'),"
        "(4, DATE'2024-02-29', NULL, 'x=1&y:[*]{{}}')",
    ],
    "nested": [
        "CREATE TABLE {t} (id BIGINT, s STRUCT<a: INT, b: ARRAY<STRUCT<c: STRING>>>, "
        "m MAP<STRING, DECIMAL(38,10)>, b BINARY, n TIMESTAMP_NTZ, f FLOAT, ok BOOLEAN) "
        "USING delta",
        "INSERT INTO {t} VALUES (1, struct(7, array(struct('x'), struct(NULL))), map('k', 1.5), "
        "X'00ff', TIMESTAMP_NTZ'2024-01-01 00:00:00.000001', float('nan'), true), "
        "(2, NULL, NULL, NULL, NULL, NULL, NULL), (3, struct(NULL, NULL), map(), X'', "
        "TIMESTAMP_NTZ'0001-01-01 00:00:00', -0.0, false)",
    ],
}
#: deltalake's reader lacks these features.
NOT_FOR_DELTALAKE = {"vectors", "mapped"}


@dataclass(frozen=True)
class Source:
    """A lake, and the session that reads it."""

    spark: SparkSession
    place: Place

    def read(self, table: str, /, **options: object) -> DataFrame:
        reader = self.spark.read.format("lakevilla").option("lake", self.place.root)
        for name, value in options.items():
            reader = reader.option(name, value)  # type: ignore[arg-type]
        return reader.load(table)

    def rows(self, table: str, /, **options: object) -> Rows:
        return in_order(self.read(table, **options).toArrow())

    def by_transaction(self, table: str, how: str) -> Rows:
        """Return the rows that ``read`` of a Spark lake returns by one of its two readers."""
        lake = lv.connect(self.place.root, spark=self.spark, spark_reader=how)  # type: ignore[arg-type]
        with lake.transaction(read_only=True) as txn:
            frame: Any = txn.read(table)
            return in_order(frame.toArrow())


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    lv.register_data_source(spark)
    return Source(spark, Place(str(tmp_path / "lake")))


@pytest.fixture
def bank(source: Source) -> Source:
    source.place.write("bank", accounts(4))
    return source


@pytest.fixture
def pushing(spark: SparkSession) -> Any:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def shown(rows: Rows) -> list[str]:
    """Return the rows as text, so that NaN is equal to NaN."""
    return [repr(row) for row in rows]


@pytest.mark.connector("delta")
@pytest.mark.parametrize("table", MAKE)
def test_the_data_source_and_other_readers_return_equal_rows(source: Source, table: str) -> None:
    for statement in MAKE[table]:
        text = statement.replace("{t}", f"delta.`{source.place.uri(table)}`")
        source.spark.sql(text.replace("{{}}", "{}"))
    with source.place.connect() as lake:
        expected = shown(in_order(lake.snapshot().read(table)))
    assert shown(source.rows(table)) == expected
    assert shown(source.by_transaction(table, "native")) == expected
    assert shown(source.by_transaction(table, "python")) == expected
    if table not in NOT_FOR_DELTALAKE:
        theirs = DeltaTable(source.place.uri(table)).to_pyarrow_table()
        assert shown(in_order(theirs)) == expected
    assert len(expected) > 2


@pytest.mark.seam
def test_the_data_source_reads_a_past_version_by_number_and_by_timestamp(bank: Source) -> None:
    with bank.place.connect() as lake:
        lake.run(lambda txn: txn.append("bank", pa.table({"id": [9], "balance": [9]})))
        then = lake.snapshot().timestamp
        lake.run(lambda txn: txn.delete("bank", where="id < 3"))
        past = in_order(lake.snapshot(1).read("bank"))
    assert then is not None
    assert bank.rows("bank", version=1) == past
    assert bank.rows("bank", timestamp=then.isoformat()) == past
    assert len(bank.rows("bank")) == 2
    assert bank.by_transaction("bank", "python") == bank.rows("bank")


def test_a_frame_keeps_the_state_in_which_it_was_loaded(bank: Source) -> None:
    frame = bank.read("bank")
    with bank.place.connect() as lake:
        lake.run(lambda txn: txn.update("bank", {"balance": 0}, where="true"))
    assert {row["balance"] for row in in_order(frame.toArrow())} == {100}
    assert {row["balance"] for row in bank.rows("bank")} == {0}


def test_a_frame_keeps_a_decided_commit_that_was_unpublished_when_it_was_loaded(
    bank: Source,
) -> None:
    """The frame's state is no version of the table's log, and shows no later commit."""
    from tests.support.stores import interrupted, is_entry

    frames: list[DataFrame] = []
    with bank.place.connect() as lake:
        txn = lake.transaction()
        txn.update("bank", {"balance": "balance + 1"}, where="id = 1")
        with interrupted(lake, is_entry("bank"), lambda: frames.append(bank.read("bank"))):
            txn.commit()
        lake.run(lambda txn: txn.delete("bank", where="true"))
    rows = in_order(frames[0].toArrow())
    assert {row["id"]: row["balance"] for row in rows} == {0: 100, 1: 101, 2: 100, 3: 100}


def test_a_foreign_commit_shows_before_it_has_a_global_version(bank: Source) -> None:
    with bank.place.connect() as lake:
        lake.run(lambda txn: txn.append("bank", pa.table({"id": [9], "balance": [9]})))
    bank.place.write("bank", [{"id": 10, "balance": 10}])
    frame = bank.read("bank")
    bank.place.write("bank", [{"id": 11, "balance": 11}])
    assert {row["id"] for row in in_order(frame.toArrow())} == {0, 1, 2, 3, 9, 10}


def test_options_choose_columns_and_rows(bank: Source) -> None:
    rows = bank.rows("bank", columns="balance, id", where="id in (1, 3)")
    assert rows == [{"balance": 100, "id": 1}, {"balance": 100, "id": 3}]
    named = bank.spark.read.format("lakevilla").option("lake", bank.place.root).schema("id LONG")
    assert in_order(named.load("bank").toArrow()) == [{"id": n} for n in range(4)]


@pytest.mark.seam
def test_a_predicate_on_the_partition_opens_no_file_of_other_partitions(source: Source) -> None:
    for number in range(3):
        source.place.write("t", [{"id": number, "part": f"p{number}"}], partition_by=["part"])
    for path in Path(source.place.uri("t")).glob("part=p[01]/*"):
        path.unlink()  # a reader that opens the file fails
    assert source.rows("t", where="part = 'p2'") == [{"id": 2, "part": "p2"}]
    with pytest.raises(Exception, match="part=p"):
        source.rows("t")


def test_the_option_partitions_sets_the_number_of_tasks(source: Source) -> None:
    import numpy as np

    noise = pa.table({"x": np.random.default_rng(7).integers(0, 2**62, 700_000)})
    for _ in range(4):
        source.place.write("t", noise)
    assert source.read("t", partitions=2).rdd.getNumPartitions() == 2
    assert source.read("t", partitions=1).rdd.getNumPartitions() == 1
    assert source.read("t").rdd.getNumPartitions() == 4, "for 32: a file each"
    with lv.connect(source.place.root, spark=source.spark):
        own = source.spark.sparkContext.defaultParallelism
        assert source.read("t").rdd.getNumPartitions() == own < 4
    assert source.read("t").count() == 2_800_000


FILTERS = [
    "id > 1 and s is not null",
    "not (s like '%b')",
    "x < 2.5",
    "x = double('nan')",
    "d >= DATE'2024-01-02'",
    "ts = TIMESTAMP'2024-01-01 00:00:00Z'",
    "ts > TIMESTAMP'2024-01-01 08:00:00'",
    "n <= 1.10",
    "f = float('0.1')",
]


def test_pushed_filters_select_the_rows_that_spark_selects(source: Source, pushing: None) -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    rows = pa.table(
        {
            "id": pa.array([0, 1, 2, 3, 4, None], pa.int64()),
            "s": ["a", "ä", "ab", "", "A", None],
            "x": [1.0, float("nan"), -0.0, 2.5, float("inf"), None],
            "f": pa.array([0.1, 0.2, None, 0.3, 1.0, 2.0], pa.float32()),
            "d": [None, *(at.date() + timedelta(days=n) for n in range(5))],
            "ts": [None, *(at + timedelta(hours=8 * n) for n in range(5))],
            "n": pa.array([None, "1.10", "1.11", "-1.10", "0.00", "9.99"]).cast(
                pa.decimal128(9, 2)
            ),
            "ok": [True, False, None, True, False, None],
        }
    )
    source.place.write("t", rows)
    plain = source.spark.createDataFrame(rows)
    for text in FILTERS:
        pushed = source.read("t", pushdown="true").where(text)
        theirs = plain.where(text)
        assert shown(in_order(pushed.toArrow())) == shown(in_order(theirs.toArrow())), text
    if not hasattr(DataSourceReader, "pushFilters"):
        return  # Spark 4.0 pushes no filters
    taken = source.read("t", pushdown="true").where("id = 1")
    optimized = plan_of(taken).partition("== Optimized Logical Plan")[2]
    assert "Filter" not in optimized.partition("== Physical Plan")[0]


def test_two_uses_of_one_frame_with_different_filters_return_their_own_rows(
    bank: Source, pushing: None
) -> None:
    """Spark 4 plans a Python source once for all its uses, with the filters of the last one."""
    frame = bank.read("bank")
    both = frame.where("id = 1").union(frame.where("id = 2"))
    assert [row["id"] for row in in_order(both.toArrow())] == [1, 2]
    assert frame.count() == 4


def test_a_frame_joined_with_itself_returns_the_rows_of_both_sides(
    bank: Source, pushing: None
) -> None:
    """Join with a filter pushed on one side alone, and with different filters on the sides."""
    frame = bank.read("bank")
    few = frame.where("id = 1").alias("few")
    joined = few.join(frame.alias("every"), F.expr("few.id <= every.id"))
    assert sorted(row[0] for row in joined.select("every.id").collect()) == [1, 2, 3]
    other = frame.where("id >= 2").alias("other")
    pairs = few.join(other, F.expr("few.id < other.id")).selectExpr("few.id", "other.id")
    assert sorted(map(tuple, pairs.collect())) == [(1, 2), (1, 3)]
    left = frame.where("id < 2").select("id").exceptAll(frame.where("id = 0").select("id"))
    assert [row[0] for row in left.collect()] == [1]


def test_each_lake_of_a_session_is_read_with_its_own_options_which_no_plan_shows(
    spark: SparkSession, s3_server: S3Server, s3_root: str, tmp_path: Path
) -> None:
    key, secret = "AKIALOOKSLIKEAKEY", "wJalrXUtnFEMIbPxRfiCYLOOKSSECRET"
    options = {
        **s3_server.storage_options,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
    }
    far = Place(s3_root, options)
    near = Place(str(tmp_path / "near"))
    far.write("t", accounts(3))
    near.write("t", accounts(2))
    for place in (far, near):
        lv.connect(place.root, spark=spark, storage_options=place.storage_options or None)
    sources = [Source(spark, place) for place in (far, near)]
    frames = [source.read("t") for source in sources]
    assert [frame.count() for frame in frames] == [3, 2]
    frame = frames[0]
    told = [plan_of(frame), repr(frame), str(frame.schema)]
    told.append(str(spark.sql("SET -v").collect()) + str(spark.sql("SET").collect()))
    for mistake in ("no_such_table", "../t"):
        with pytest.raises(Exception, match=r"table|path") as error:
            sources[0].read(mistake)
        told.append(f"{error.value!r} {error.value}")
    with pytest.raises(Exception, match="has no option aws_secret_access_key") as error:
        sources[0].read("t", AWS_SECRET_ACCESS_KEY="another-secret")
    assert "another-secret" not in str(error.value)
    for text in told:
        assert key not in text
        assert secret not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lake": "memory://x"}, "lives in the memory of one process"),
        ({"colums": "id"}, "has no option colums: did you mean columns[?] it has lake, table, ref"),
        ({"columns": "id,nope"}, "there is no column nope; its columns are id, balance"),
        ({"version": "99"}, "the lake has no global version 99; its newest is 1"),
        ({"timestamp": "1999-01-01T00:00:00Z"}, "no global version that is kept is as old"),
        ({"where": "nope = 1"}, "there is no column nope"),
    ],
)
@pytest.mark.seam
def test_a_wrong_option_is_reported_when_the_frame_is_created(
    bank: Source, options: dict[str, str], message: str
) -> None:
    with bank.place.connect() as lake:
        lake.run(lambda txn: txn.delete("bank", where="id = 0"))
    with pytest.raises(Exception, match=message):
        bank.read("bank", **options)


def test_a_missing_table_and_a_schema_that_does_not_fit_are_reported(
    bank: Source,
) -> None:
    with pytest.raises(Exception, match="TableNotFound"):
        bank.read("nothing")
    reader = bank.spark.read.format("lakevilla").option("lake", bank.place.root)
    with pytest.raises(Exception, match="needs a table's name"):
        reader.load()
    with pytest.raises(Exception, match="column balance is bigint, not string as the reader's"):
        reader.schema("balance STRING").load("bank").count()


def test_a_predicate_without_matches_and_an_empty_table_return_no_rows(bank: Source) -> None:
    assert bank.rows("bank", where="id > 1000") == []
    with bank.place.connect() as lake:
        lake.run(lambda txn: txn.delete("bank", where="true"))
    assert bank.rows("bank") == []


def test_not_null_columns_are_read_as_other_columns(source: Source) -> None:
    inner = pa.struct([pa.field("a", pa.int32(), False), pa.field("b", pa.string())])
    strict = pa.schema(
        [
            pa.field("id", pa.int64(), False),
            pa.field("s", inner),
            pa.field("l", pa.list_(pa.field("element", pa.int64(), False))),
            pa.field("at", pa.timestamp("us", "UTC")),
        ]
    )
    row = {"id": 1, "s": {"a": 1, "b": None}, "l": [1], "at": datetime(2024, 2, 29, tzinfo=UTC)}
    empty = {"id": 2, "s": None, "l": None, "at": None}
    with source.place.connect() as lake:
        lake.create_table("strict", pa.Table.from_pylist([row, empty], strict))

    def rows(frame: DataFrame, *more: str) -> list[tuple[Any, ...]]:
        # Spark's own toArrow fails for a NULL struct with a NOT NULL field.
        found = in_order(frame.selectExpr("id", "s IS NULL", "s.a", *more).toArrow())
        return [tuple(one.values()) for one in found]

    expected = [(1, False, 1), (2, True, None)]
    whole = rows(source.read("strict"), "l", "at")
    assert whole == [(*expected[0], [1], row["at"]), (*expected[1], None, None)]
    assert rows(source.read("strict", startingVersion=1)) == expected
    reader = source.spark.read.format("lakevilla").option("lake", source.place.root)
    some = reader.schema("id BIGINT NOT NULL, s STRUCT<a: INT, b: STRING>").load("strict")
    assert rows(some) == expected
    with pytest.raises(Exception, match="column at may be NULL, and the reader's schema says NOT"):
        reader.schema("at TIMESTAMP NOT NULL").load("strict").count()


@pytest.mark.seam
@pytest.mark.night
def test_the_data_source_returns_the_versions_of_the_lake_as_rows(bank: Source) -> None:
    with bank.place.connect() as lake:
        lake.run(lambda txn: txn.delete("bank", where="id = 0"))
    reader = bank.spark.read.format("lakevilla").option("lake", bank.place.root)
    reader = reader.option("what", "versions").option("startingVersion", 1)
    [found] = reader.load().toArrow().to_pylist()
    assert (found["version"], found["since"], found["kind"]) == (1, 0, "transaction")
    assert found["tables"] == ["bank"]
    with pytest.raises(Exception, match="leave the schema out"):
        reader.schema("version STRING").load().count()


def test_a_lake_works_in_a_session_that_refuses_data_sources(
    source: Source, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing:
        def register(self, source: type) -> None:
            raise RuntimeError("not allowed here")

    monkeypatch.setattr(type(source.spark), "dataSource", Refusing())
    lake = lv.connect(source.place.root, spark=source.spark)
    assert "is not available in this session: not allowed here" in caplog.text
    lake.create_table("t", pa.table({"id": [1]}))
    with pytest.raises(lv.InvalidOperation, match="refuses the data source: not allowed here"):
        lv.register_data_source(source.spark)
    monkeypatch.undo()
    lv.register_data_source(source.spark)
    assert source.rows("t") == [{"id": 1}]


def test_reads_by_the_data_source_write_nothing(bank: Source) -> None:
    before = contents(bank.place.root)
    assert bank.read("bank").count() == 4
    assert contents(bank.place.root) == before


def plan_of(frame: DataFrame) -> str:
    """Return all that ``explain(True)`` prints."""
    from contextlib import redirect_stdout
    from io import StringIO

    out = StringIO()
    with redirect_stdout(out):
        frame.explain(True)
    return out.getvalue()


def blocked(name: str, body: str) -> subprocess.CompletedProcess[str]:
    """Run a program in which a package can't be imported."""
    program = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {name!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
{body}
"""
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=120
    )


def test_a_worker_without_lakevilla_raises_an_error_that_says_so(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    made = tmp_path / "class"
    made.write_bytes(cloudpickle.dumps(data_source(b"")))
    done = blocked(
        "lakevilla",
        f"""
import pickle
source = pickle.load(open({str(made)!r}, "rb"))(options={{"lake": "x", "path": "t"}})
for call in (source.schema, lambda: source.streamReader(None)):
    try:
        call()
    except RuntimeError as error:
        print(error)
""",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("LakeVilla is missing: the Python of Spark's workers") == 2
    assert sys.executable in done.stdout


def test_a_lake_without_spark_works_without_pyspark_installed(tmp_path: Path) -> None:
    done = blocked(
        "pyspark",
        f"""
import lakevilla as lv, pyarrow as pa
lake = lv.connect({str(tmp_path / "lake")!r})
lake.create_table("t", pa.table({{"id": [1]}}))
lake.run(lambda txn: txn.append("t", pa.table({{"id": [2]}})))
print(sorted(lake.snapshot().read("t")["id"].to_pylist()))
""",
    )
    assert done.stdout == "[1, 2]\n", done.stderr


def test_register_data_source_refuses_an_object_that_is_no_session() -> None:
    call: Callable[[Any], None] = lv.register_data_source
    with pytest.raises(lv.InvalidOperation, match="must be a SparkSession, not str"):
        call("local")

"""Use table features that Spark turns on: LakeVilla honours them, or refuses them by name."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.interop.spark.beside import Beside
from tests.support.row_ids import lineage_of

ROWS = "INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')"


def filled(beside: Beside, columns: str = "k BIGINT, v STRING", **properties: str) -> lv.Lake:
    """Return a table ``t`` of Spark's with three rows in one file, and a client of the lake."""
    beside.make(columns, "t", **properties)
    beside.sql(ROWS, "t")
    return beside.connect()


def features(beside: Beside) -> set[str]:
    protocol = beside.actions("protocol", "t")[-1]
    return {*protocol.get("writerFeatures", ()), *protocol.get("readerFeatures", ())}


# -- change data feed ----------------------------------------------------------------------


def test_a_change_data_feed_that_both_clients_write_is_the_same_to_both(beside: Beside) -> None:
    with filled(beside, enableChangeDataFeed="true") as lake:
        since = lake.snapshot().version
        with lake.transaction() as txn:
            txn.update("t", {"v": "v || '1'"}, where="k = 1")
            txn.append("t", [{"k": 4, "v": "d"}])
        beside.sql("UPDATE {t} SET v = v || '2' WHERE k <= 2", "t")
        beside.sql("DELETE FROM {t} WHERE k = 3", "t")
        with lake.transaction() as txn:
            txn.delete("t", where="k = 1")
        beside.sql(
            """MERGE INTO {t} t USING (SELECT 4L k UNION SELECT 5L k) s ON t.k = s.k
               WHEN MATCHED THEN UPDATE SET v = 'm'
               WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, 'n')""",
            "t",
        )
        with lake.transaction() as txn:  # absorbs Spark's last commit
            txn.append("t", [{"k": 6, "v": "f"}])
        with lake.snapshot() as state:
            ours = state.changes("t", since).to_pylist()
    theirs = beside.spark.sql(f"SELECT * FROM table_changes_by_path('{beside.path('t')}', 2)")

    def told(rows: list[Any]) -> Counter[tuple[Any, ...]]:
        return Counter((row["_change_type"], row["k"], row["v"]) for row in rows)

    expected = {
        ("update_preimage", 1, "a"), ("update_postimage", 1, "a1"), ("insert", 4, "d"),
        ("update_preimage", 1, "a1"), ("update_postimage", 1, "a12"),
        ("update_preimage", 2, "b"), ("update_postimage", 2, "b2"),
        ("delete", 3, "c"), ("delete", 1, "a12"),
        ("update_preimage", 4, "d"), ("update_postimage", 4, "m"), ("insert", 5, "n"),
        ("insert", 6, "f"),
    }  # fmt: skip
    assert told(theirs.collect()) == dict.fromkeys(expected, 1)
    assert told([row for row in ours if row["k"] in range(1, 7)]) >= Counter(expected)
    assert beside.both("t") == {(2, "b2"): 1, (4, "m"): 1, (5, "n"): 1, (6, "f"): 1}


# -- column mapping ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.seam
def test_mapped_columns_are_renamed_dropped_and_added_by_both_clients(
    beside: Beside, mode: str
) -> None:
    mapping = {"columnMapping.mode": mode}
    columns = "k BIGINT, v STRING, `odd name, (x)` INT, s STRUCT<a: INT, b: STRING>"
    beside.make(columns, "t", **mapping)
    beside.sql("INSERT INTO {t} VALUES (1, 'a', 1, struct(1, 'x')), (2, 'b', 2, NULL)", "t")
    beside.sql("ALTER TABLE {t} RENAME COLUMN v TO w", "t")
    with beside.connect() as lake:
        with lake.transaction() as txn:
            txn.alter("t", rename_columns={"odd name, (x)": "odd"})
            txn.update("t", {"w": "w || '1'"}, where="k = 1")
            txn.append("t", [{"k": 3, "w": "c", "odd": 3, "s": {"a": 3, "b": "z"}}])
        beside.sql("ALTER TABLE {t} RENAME COLUMN s.a TO aa", "t")
        beside.sql("ALTER TABLE {t} DROP COLUMN odd", "t")
        beside.sql("ALTER TABLE {t} ADD COLUMN odd STRING", "t")  # another column of the same name
        beside.sql("UPDATE {t} SET odd = 'new' WHERE k = 3", "t")
    with beside.connect() as lake:
        with lake.transaction() as txn:
            txn.alter("t", add_columns=pa.schema([("more", pa.int64())]))
            txn.update("t", {"more": "k * 10"}, where="k >= 2")
    frame = beside.arrow("t")
    with beside.connect() as lake, lake.snapshot() as state:
        ours = state.read("t")
    key = repr
    assert sorted(map(key, ours.to_pylist())) == sorted(map(key, frame.to_pylist()))
    assert {row["k"]: row for row in frame.to_pylist()} == {
        1: {"k": 1, "w": "a1", "s": {"aa": 1, "b": "x"}, "odd": None, "more": None},
        2: {"k": 2, "w": "b", "s": None, "odd": None, "more": 20},
        3: {"k": 3, "w": "c", "s": {"aa": 3, "b": "z"}, "odd": "new", "more": 30},
    }


def test_a_mapped_and_partitioned_table_with_deletion_vectors_is_changed_by_both_clients(
    beside: Beside,
) -> None:
    beside.make(
        "k BIGINT, `p q` STRING | PARTITIONED BY (`p q`)",
        "t",
        **{"columnMapping.mode": "name", "enableDeletionVectors": "true"},
    )
    beside.sql("INSERT INTO {t} VALUES (1, 'a/b'), (2, 'a/b'), (3, NULL), (4, NULL)", "t")
    beside.sql("DELETE FROM {t} WHERE k IN (1, 3)", "t")
    with beside.connect() as lake:
        with lake.transaction() as txn:
            txn.update("t", {"k": "k + 10"}, where='"p q" IS NULL')
            txn.append("t", [{"k": 5, "p q": "a/b"}])
        beside.sql("DELETE FROM {t} WHERE k = 5", "t")
        beside.sql("REORG TABLE {t} APPLY (PURGE)", "t")
        beside.sql("ALTER TABLE {t} RENAME COLUMN `p q` TO p", "t")
    with beside.connect() as lake:
        with lake.transaction() as txn:
            txn.update("t", {"p": "'c d'"}, where="k = 2")
    assert beside.both("t") == {(2, "c d"): 1, (14, None): 1}


# -- numbers and timestamps that the log keeps ---------------------------------------------


def row_ids(beside: Beside, table: str = "t") -> dict[int, tuple[int, int]]:
    """Return the id of each row, and the version of its last change, as Spark reads them."""
    frame = beside.spark.read.format("delta").load(beside.path(table))
    found = frame.select("k", "_metadata.row_id", "_metadata.row_commit_version").collect()
    assert len({row[1] for row in found}) == len(found), "a row id is there twice"
    return {row[0]: (row[1], row[2]) for row in found}


@pytest.mark.parametrize("mode", ["none", "id"])
def test_rows_keep_their_ids_whichever_client_writes(beside: Beside, mode: str) -> None:
    properties = {"enableRowTracking": "true", "enableDeletionVectors": "true"}
    with filled(beside, **properties, **{"columnMapping.mode": mode}) as lake:
        known = row_ids(beside)

        def hold(*changed: int) -> None:
            """Check that rows keep their ids, and that a version rises where a row changed."""
            nonlocal known
            found = row_ids(beside)
            ours = lineage_of(Path(beside.path("t")), "k")
            assert ours == found
            for k in known.keys() & found.keys():
                assert found[k][0] == known[k][0]
                assert (found[k][1] > known[k][1]) == (k in changed)
            known = found

        lake.run(lambda txn: txn.append("t", [{"k": k, "v": "d"} for k in range(4, 9)]))
        beside.sql("UPDATE {t} SET v = 'y' WHERE k = 4", "t")
        hold(4)
        lake.run(lambda txn: txn.update("t", {"v": "v || 'z'"}, where="k in (4, 6)"))
        hold(4, 6)
        beside.sql("DELETE FROM {t} WHERE k = 5", "t")  # by a vector
        lake.run(lambda txn: txn.upsert("t", [{"k": 7, "v": "u"}, {"k": 20, "v": "n"}], keys="k"))
        hold(7)
        beside.sql(
            """MERGE INTO {t} t USING (SELECT 8L k UNION SELECT 21L k) s ON t.k = s.k
               WHEN MATCHED THEN UPDATE SET v = 'm'
               WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, 'n')""",
            "t",
        )
        hold(8)
        lake.table("t").optimize()
        hold()
        lake.run(lambda txn: txn.delete("t", where="k = 1"))
        beside.sql("OPTIMIZE {t} ZORDER BY (v)", "t")
        lake.table("t").optimize(z_order_by=["k"])
        hold()
        lake.clone("t", "c")
        lake.run(lambda txn: txn.append("c", [{"k": 30, "v": "c"}]))
        cloned = row_ids(beside, "c")
        assert {k: cloned[k][0] for k in known} == {k: row for k, (row, _) in known.items()}
    tags = [info.get("tags", {}) for info in beside.actions("commitInfo", "t")]
    assert {tag.get("delta.rowTracking.preserved", "true") for tag in tags} == {"true"}


def test_in_commit_timestamps_rise_and_spark_reads_versions_by_them(beside: Beside) -> None:
    with filled(beside, enableInCommitTimestamps="true") as lake:
        with lake.transaction() as txn:
            txn.append("t", [{"k": 4, "v": "d"}])
        beside.sql("INSERT INTO {t} VALUES (5, 'e')", "t")
        with lake.transaction() as txn:
            txn.delete("t", where="k = 5")
    stamps = [info["inCommitTimestamp"] for info in beside.actions("commitInfo", "t")]
    assert stamps == sorted(set(stamps))
    assert len(stamps) == 5
    instant = datetime.fromtimestamp(stamps[2] / 1000, UTC).isoformat()
    reader = beside.spark.read.format("delta").option("timestampAsOf", instant)
    assert sorted(row.k for row in reader.load(beside.path("t")).collect()) == [1, 2, 3, 4]
    assert sorted(row[0] for row in beside.both("t")) == [1, 2, 3, 4]


# -- checkpoints ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "properties",
    [
        {"checkpointPolicy": "v2"},
        {"checkpoint.writeStatsAsStruct": "true", "checkpoint.writeStatsAsJson": "false"},
    ],
    ids=["v2", "struct statistics"],
)
@pytest.mark.seam
@pytest.mark.night
def test_a_table_is_read_from_spark_s_checkpoint_after_its_older_log_was_deleted(
    beside: Beside, properties: dict[str, str]
) -> None:
    with filled(beside, checkpointInterval="2", enableDeletionVectors="true", **properties):
        beside.sql("DELETE FROM {t} WHERE k = 2", "t")  # version 2, and a checkpoint
    assert list(beside.log("t").glob("*.checkpoint*"))
    for path in beside.log("t").glob("*[0-9].json"):
        path.unlink() if int(path.name.partition(".")[0]) < 2 else None
    with beside.connect() as lake:
        for number in range(10, 14):
            with lake.transaction() as txn:
                txn.append("t", [{"k": number, "v": "n"}])
                txn.update("t", {"v": "v || '!'"}, where="k = 3")
    assert beside.both("t") == {
        (1, "a"): 1, (3, "c!!!!"): 1, **{(n, "n"): 1 for n in range(10, 14)},
    }  # fmt: skip


# -- layout --------------------------------------------------------------------------------


def test_a_clustered_table_is_written_by_lakevilla_and_optimized_by_spark(beside: Beside) -> None:
    with filled(beside, "k BIGINT, v STRING | CLUSTER BY (k)") as lake:
        with lake.transaction() as txn:
            txn.append("t", [{"k": 4, "v": "d"}])
            txn.update("t", {"v": "'x'"}, where="k = 1")
        beside.sql("OPTIMIZE {t}", "t")
        with lake.transaction() as txn:
            txn.update("t", {"v": "'y'"}, where="k = 2")
        lake.table("t").optimize()
        domains = [it["domain"] for it in beside.actions("domainMetadata", "t")]
        assert "delta.clustering" in domains
        (detail,) = beside.sql("DESCRIBE DETAIL {t}", "t")
        assert detail.clusteringColumns == ["k"]
    assert beside.both("t") == {(1, "x"): 1, (2, "y"): 1, (3, "c"): 1, (4, "d"): 1}


@pytest.mark.seam
@pytest.mark.night
def test_a_shallow_clone_of_spark_is_read_and_changed_and_its_source_stays_unchanged(
    beside: Beside,
) -> None:
    """The clone's log names files of another table, and may repeat ``txn`` actions of its source's
    log.
    """
    with filled(beside) as lake:
        with lake.transaction() as txn:
            txn.update("t", {"v": "v || '1'"}, where="k = 1")
        beside.sql("CREATE TABLE {c} SHALLOW CLONE {t}", "t", c="clone")
        for _ in range(3):
            with lake.transaction() as txn:
                txn.update("clone", {"v": "v || '2'"}, where="k = 1")
                txn.append("t", [{"k": 4, "v": "d"}])
        assert lake.recover().ok
    assert beside.both("clone") == {(1, "a1222"): 1, (2, "b"): 1, (3, "c"): 1}
    assert beside.both("t") == {(1, "a1"): 1, (2, "b"): 1, (3, "c"): 1, (4, "d"): 3}


# -- rules ---------------------------------------------------------------------------------


def test_constraints_that_either_client_made_bind_both_clients(beside: Beside) -> None:
    with filled(beside, "k BIGINT NOT NULL, v STRING") as lake:
        beside.sql("ALTER TABLE {t} ADD CONSTRAINT small CHECK (k < 100)", "t")
        with lake.transaction() as txn:
            txn.alter("t", add_constraints={"short": "length(v) < 3"})
        for rows in ([{"k": 100, "v": "d"}], [{"k": 4, "v": "ddd"}], [{"k": None, "v": "d"}]):
            with pytest.raises(lv.InvalidOperation), lake.transaction() as txn:
                txn.append("t", pa.Table.from_pylist(rows))
        for values in ("(100, 'd')", "(4, 'ddd')", "(NULL, 'd')"):
            with pytest.raises(Exception, match=r"CONSTRAINT|CHECK|NOT NULL|NOT_NULL"):
                beside.sql(f"INSERT INTO {{t}} VALUES {values}", "t")
    assert beside.both("t") == {(1, "a"): 1, (2, "b"): 1, (3, "c"): 1}


def test_an_append_only_table_is_not_updated(beside: Beside) -> None:
    with filled(beside, appendOnly="true") as lake:
        with pytest.raises(lv.LakeVillaError, match=r"append-?only"), lake.transaction() as txn:
            txn.delete("t", where="k = 1")
        with lake.transaction() as txn:
            txn.append("t", [{"k": 4, "v": "d"}])
    assert sorted(row[0] for row in beside.both("t")) == [1, 2, 3, 4]


def test_a_column_that_spark_widened_is_read_from_old_files_and_written_in_the_wide_type(
    beside: Beside,
) -> None:
    beside.make("k INT, d DECIMAL(5, 2), f FLOAT", "t", enableTypeWidening="true")
    beside.sql("INSERT INTO {t} VALUES (1, 1.25, 1.5), (2, 2.25, 2.5)", "t")
    beside.sql("ALTER TABLE {t} ALTER COLUMN k TYPE BIGINT", "t")
    beside.sql("ALTER TABLE {t} ALTER COLUMN d TYPE DECIMAL(12, 4)", "t")
    beside.sql("ALTER TABLE {t} ALTER COLUMN f TYPE DOUBLE", "t")
    assert len(beside.both("t")) == 2
    with beside.connect() as lake, lake.transaction() as txn:
        txn.append("t", [{"k": 2**40, "d": None, "f": 0.1}])
        txn.update("t", {"k": f"k + {2**41}"}, where="k = 1")
    assert {row[0]: row[2] for row in beside.both("t")} == {2: 2.5, 2**40: 0.1, 2**41 + 1: 1.5}


def test_a_column_that_lakevilla_widened_is_read_and_written_by_spark(beside: Beside) -> None:
    beside.make("k INT, d DATE", "t")
    beside.sql("INSERT INTO {t} VALUES (1, DATE'2020-01-02'), (2, NULL)", "t")
    with beside.connect() as lake, lake.transaction() as txn:
        txn.alter("t", set_properties={"delta.enableTypeWidening": True})
        txn.alter("t", change_types={"k": "bigint", "d": "timestamp_ntz"})
        txn.append("t", [{"k": 2**40}])
    beside.sql("INSERT INTO {t} VALUES (3, TIMESTAMP_NTZ'2020-01-02 03:04:05')", "t")
    assert {row[0] for row in beside.both("t")} == {1, 2, 3, 2**40}
    beside.sql("ALTER TABLE {t} ALTER COLUMN k TYPE DECIMAL(22, 2)", "t")
    with beside.connect() as lake:
        assert lake.table("t").schema.field("k").type == pa.decimal128(22, 2)
    assert len(beside.both("t")) == 4


REFUSED = {
    "generatedColumns": ("k BIGINT, v STRING, g BIGINT GENERATED ALWAYS AS (k + 1)", {}),
    "identityColumns": ("k BIGINT, v STRING, i BIGINT GENERATED ALWAYS AS IDENTITY", {}),
    "allowColumnDefaults": (
        "k BIGINT, v STRING, d BIGINT DEFAULT 7",
        {"feature.allowColumnDefaults": "supported"},
    ),
    "icebergCompatV2": (
        "k BIGINT, v STRING",
        {"columnMapping.mode": "name", "enableIcebergCompatV2": "true"},
    ),
}


@pytest.mark.parametrize("feature", REFUSED)
def test_a_table_whose_feature_requires_computed_values_is_read_and_refused_for_writing(
    beside: Beside, feature: str
) -> None:
    columns, properties = REFUSED[feature]
    beside.make(columns, "t", **properties)
    beside.sql("INSERT INTO {t} (k, v) VALUES (1, 'a'), (2, 'b')", "t")
    before = sorted(path.name for path in beside.log("t").iterdir())
    assert len(beside.both("t")) == 2
    with beside.connect() as lake:
        with pytest.raises(lv.UnsupportedTableFeature, match=feature) as raised:
            with lake.transaction() as txn:
                txn.append("t", [{"k": 3, "v": "c"}])
        assert raised.value.table == "t"
        with pytest.raises(lv.UnsupportedTableFeature, match=feature), lake.transaction() as txn:
            txn.delete("t", where="k = 1")
    assert sorted(path.name for path in beside.log("t").iterdir()) == before


def test_a_column_of_variants_is_refused_by_name(beside: Beside) -> None:
    beside.make("k BIGINT, v VARIANT", "t")
    with beside.connect() as lake, pytest.raises(lv.UnsupportedTableFeature, match="variant"):
        lake.snapshot().read("t")


def test_a_table_with_a_retention_of_its_transaction_identifiers_is_refused_by_name(
    beside: Beside,
) -> None:
    """Delta's ``txn`` action shows that a commit is published; with a retention it would expire."""
    with filled(beside, setTransactionRetentionDuration="interval 1 day") as lake:
        match = "setTransactionRetentionDuration"
        with pytest.raises(lv.UnsupportedTableFeature, match=match), lake.transaction() as txn:
            txn.append("t", [{"k": 4, "v": "d"}])


# -- Spark's own idempotent writes ---------------------------------------------------------


def test_spark_s_application_versions_are_kept_next_to_lakevilla_s_commits(beside: Beside) -> None:
    """A stream's sink writes ``txnAppId`` and ``txnVersion``, and a checkpoint keeps them."""
    with filled(beside, checkpointInterval="2") as lake:

        def write(version: int) -> None:
            frame = beside.spark.sql(f"SELECT {10 + version}L AS k, 's' AS v")
            options = {"txnAppId": "stream", "txnVersion": str(version)}
            frame.write.format("delta").mode("append").options(**options).save(beside.path("t"))

        write(1)
        for number in range(4, 7):
            with lake.transaction() as txn:
                txn.append("t", [{"k": number, "v": "d"}])
        write(1)  # committed already
        write(2)
        with lake.transaction(idempotency_key=("stream", 3)) as txn:
            txn.append("t", [{"k": 13, "v": "s"}])
        write(3)  # committed already, by LakeVilla
        write(4)
    assert sorted(row[0] for row in beside.both("t")) == [1, 2, 3, 4, 5, 6, 11, 12, 13, 14]


def test_a_stream_of_spark_reads_lakevilla_s_appends_and_skips_files_that_it_only_moves(
    beside: Beside,
) -> None:
    seen: list[int] = []

    def follow() -> None:
        stream = beside.spark.readStream.format("delta").load(beside.path("t"))
        query = (
            stream.writeStream.foreachBatch(
                lambda frame, _: seen.extend(row.k for row in frame.collect())
            )
            .option("checkpointLocation", f"{beside.place.root}/.stream")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with filled(beside) as lake:
        follow()
        for number in range(4, 7):
            with lake.transaction() as txn:
                txn.append("t", [{"k": number, "v": "d"}])
        follow()
        lake.table("t").optimize()
        with lake.transaction() as txn:
            txn.append("t", [{"k": 7, "v": "d"}])
        follow()
    assert any(not it["dataChange"] for it in beside.actions("add", "t")), "nothing was moved"
    assert sorted(seen) == [1, 2, 3, 4, 5, 6, 7]


def test_table_features_that_spark_set_survive_lakevilla_s_changes_of_the_protocol(
    beside: Beside,
) -> None:
    with filled(beside, enableRowTracking="true", enableDeletionVectors="true") as lake:
        before = features(beside)
        lake.guard("t")
        assert features(beside) == before | {"lakevilla"}
        lake.unguard("t")
        assert features(beside) == before
    metadata = json.dumps(beside.actions("metaData", "t")[-1])
    assert "delta.enableRowTracking" in metadata
    beside.sql("UPDATE {t} SET v = 'x' WHERE k = 1", "t")
    assert beside.both("t") == {(1, "x"): 1, (2, "b"): 1, (3, "c"): 1}


def test_a_client_that_only_writes_reads_a_column_that_spark_has_added(beside: Beside) -> None:
    with filled(beside) as lake:
        with lake.transaction() as txn:
            txn.update("t", {"v": "'x'"}, where="k = 1")
        beside.sql("ALTER TABLE {t} ADD COLUMNS (n BIGINT)", "t")
        with lake.transaction() as txn:
            txn.update("t", {"n": "k * 10"}, where="k = 2")
    assert beside.both("t") == {(1, "x", None): 1, (2, "b", 20): 1, (3, "c", None): 1}

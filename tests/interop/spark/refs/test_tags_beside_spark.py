"""Keep tags of tables that Spark makes, changes, compacts and cleans up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lakevilla as lv
from tests.interop.spark.beside import Beside
from tests.support.tables import bag

SHAPES: dict[str, tuple[str, dict[str, str]]] = {
    "plain": ("id BIGINT, s STRING, part INT", {}),
    "partitions": ("id BIGINT, s STRING, part INT|PARTITIONED BY (part)", {}),
    "vectors": ("id BIGINT, s STRING, part INT", {"enableDeletionVectors": "true"}),
    "mapped": (
        "id BIGINT, s STRING, part INT|PARTITIONED BY (part)",
        {"columnMapping.mode": "name", "enableDeletionVectors": "true"},
    ),
    "clustered": ("id BIGINT, s STRING, part INT|CLUSTER BY (id)", {}),
}
#: The changes of the table after its tag, in this order.
LATER = (
    "DELETE FROM {t} WHERE id % 3 = 0",
    "UPDATE {t} SET s = 'later' WHERE id % 3 = 1",
    "INSERT INTO {t} SELECT id, 'new', 7 FROM range(100, 110)",
    "OPTIMIZE {t}",
    "ALTER TABLE {t} ADD COLUMNS (more STRING)",
    "INSERT OVERWRITE {t} SELECT id, s, part, 'x' FROM {t} WHERE id > 5",
    "VACUUM {t}",
)
OF_MAPPED = (
    "ALTER TABLE {t} RENAME COLUMN s TO renamed",
    "ALTER TABLE {t} DROP COLUMN more",
    "REORG TABLE {t} APPLY (PURGE)",
)


@pytest.fixture
def at_once(beside: Beside) -> Iterator[Beside]:
    """Let Spark vacuum without its check of the retention."""
    key = "spark.databricks.delta.retentionDurationCheck.enabled"
    beside.spark.conf.set(key, "false")
    yield beside
    beside.spark.conf.unset(key)


def clean_up(lake: lv.Lake) -> None:
    for name in lake:
        lake[name].vacuum(0, dry_run=False, enforce_retention_duration=False)
    lake.gc()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tag_keeps_its_state_until_spark_deletes_its_files(at_once: Beside, shape: str) -> None:
    columns, properties = SHAPES[shape]
    at_once.make(columns, **properties)
    at_once.sql("INSERT INTO {t} SELECT id, CAST(id AS STRING), id % 2 FROM range(0, 20)")
    at_once.sql("INSERT INTO {t} SELECT id, NULL, NULL FROM range(20, 40)")
    at_once.sql("DELETE FROM {t} WHERE id % 7 = 0")
    at_once.make("id BIGINT", "untouched")
    at_once.sql("INSERT INTO {t} SELECT id FROM range(3)", "untouched")
    with at_once.connect() as lake:
        lake.register(discover=True)
        expected = at_once.arrow()
        lake.tag("closing")
        for statement in (*LATER, *(OF_MAPPED if shape == "mapped" else ())):
            at_once.sql(statement)
            lake.run(lambda txn: txn.delete("bank", where="id = 38"))
        then = lake.on("closing")
        assert bag(then.read("bank")) == bag(expected), statement
        clean_up(lake)
        assert bag(then.read("bank")) == bag(expected)
        assert at_once.both()  # and Spark reads its table
    with at_once.connect() as new:
        then = new.on("closing")
        assert bag(then.read("bank")) == bag(expected)
        assert then["bank"].schema.names == ["id", "s", "part"]
        some = then.read("bank", ["id"], where="s IS NULL AND id < 30")
        assert sorted(some["id"].to_pylist()) == [id for id in range(20, 30) if id % 7]
        assert new.doctor(files=True).ok
        at_once.sql("VACUUM {t} RETAIN 0 HOURS")
        with pytest.raises(lv.VersionNotFound, match="table bank can't be read in tag 'closing'"):
            then.read("bank")
        assert then.read("untouched").num_rows == 3
        assert {finding.kind for finding in new.doctor(files=True).findings} == {"ref_lost"}
        assert at_once.both()


def test_a_restore_by_spark_in_a_lake_with_a_tag_keeps_the_tag(at_once: Beside) -> None:
    at_once.make("id BIGINT")
    for number in range(3):
        at_once.sql(f"INSERT INTO {{t}} VALUES ({number})")
    with at_once.connect() as lake:
        lake.register("bank")
        lake.tag("closing")
        at_once.sql("RESTORE {t} TO VERSION AS OF 1")
        lake.tag("restored")
        lake.run(lambda txn: txn.append("bank", [{"id": 9}]))
        clean_up(lake)
        found = {ref.name: sorted(lake.on(ref.name).read("bank")["id"].to_pylist())
                 for ref in lake.refs()}  # fmt: skip
        assert found == {"closing": [0, 1, 2], "restored": [0]}
        assert at_once.both()


@pytest.mark.parametrize("shape", SHAPES)
def test_kept_refs_keep_their_state_when_spark_deletes_all_that_its_table_does_not_need(
    at_once: Beside, shape: str
) -> None:
    columns, properties = SHAPES[shape]
    at_once.make(columns, **properties)
    at_once.sql("INSERT INTO {t} SELECT id, CAST(id AS STRING), id % 2 FROM range(0, 20)")
    at_once.sql("DELETE FROM {t} WHERE id % 7 = 0")
    with at_once.connect() as lake:
        lake.register(discover=True)
        expected = bag(at_once.arrow())
        lake.tag("closing")
        lake.branch("etl")
        lake.on("etl").run(lambda txn: txn.update("bank", {"s": "'etl'"}, where="id = 5"))
        on_branch = bag(lake.on("etl").read("bank"))
        for statement in (*LATER, *(OF_MAPPED if shape == "mapped" else ())):
            at_once.sql(statement)
        assert lake.keep("closing").ok
        assert lake.keep("etl").ok
        at_once.sql("VACUUM {t} RETAIN 0 HOURS")
    with at_once.connect() as new:
        assert bag(new.on("closing").read("bank")) == expected
        assert bag(new.on("etl").read("bank")) == on_branch
        assert new.doctor(files=True).ok
        clean_up(new)
        assert bag(new.on("closing").read("bank")) == expected
        assert bag(new.on("etl").read("bank")) == on_branch
        assert at_once.both()

"""Keep tags of Iceberg tables that Spark makes, changes, compacts and cleans up."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from tests.interop.iceberg.beside import Beside
from tests.support.tables import bag

EXPIRE = "older_than => TIMESTAMP '2999-01-01', retain_last => 1"
ALL = "options => map('rewrite-all', 'true')"


def clean_up(lake: lv.Lake) -> None:
    for name in lake:
        lake[name].vacuum(0, dry_run=False, enforce_retention_duration=False)
    lake.gc()


@pytest.fixture
def table(beside: Beside) -> Beside:
    """Return a table with files of three commits, and rows that merge-on-read deletes hide."""
    with beside.connect() as lake:
        lake.create_table("t", [{"k": 0, "v": 0}], format="iceberg")
        lake.run(lambda txn: txn.append("t", [{"k": k, "v": k} for k in range(1, 9)]))
    for verb in ("delete", "update", "merge"):
        beside.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.{verb}.mode' = 'merge-on-read')")
    beside.sql("DELETE FROM {t} WHERE k = 3")
    return beside


@pytest.mark.parametrize("native", [False, True], ids=["expired", "with a tag of Iceberg's own"])
@pytest.mark.seam
@pytest.mark.night
def test_a_tag_keeps_its_state_until_spark_expires_the_snapshot(
    table: Beside, native: bool
) -> None:
    with table.connect() as lake:
        expected = bag(lake.read("t"))
        lake.tag("closing")
        if native:
            table.sql("ALTER TABLE {t} CREATE TAG closing")
        table.sql("UPDATE {t} SET v = 100 WHERE k < 5")
        table.sql("ALTER TABLE {t} ADD COLUMN more STRING")
        lake.run(lambda txn: txn.append("t", [{"k": 50, "v": 50, "more": "x"}]))
        table.call("rewrite_data_files", ALL)
        table.call("rewrite_manifests")
        table.sql("ALTER TABLE {t} RENAME COLUMN v TO w")
        table.sql("DELETE FROM {t} WHERE k = 7")
        table.call("remove_orphan_files")
        then = lake.on("closing")
        assert bag(then.read("t")) == expected
        clean_up(lake)
        assert bag(then.read("t")) == expected
    with table.connect() as new:
        then = new.on("closing")
        assert bag(then.read("t")) == expected
        assert then["t"].schema.names == ["k", "v"]
        assert then.read("t", where="v >= 5").num_rows == 4
        assert new.doctor(files=True).ok
        table.call("expire_snapshots", EXPIRE)
        if native:
            assert bag(then.read("t")) == expected
            with table.connect() as other:
                assert bag(other.on("closing").read("t")) == expected
                clean_up(other)
                assert bag(other.on("closing").read("t")) == expected
            return
        with table.connect() as other:
            with pytest.raises(lv.VersionNotFound, match="table t can't be read in tag 'closing'"):
                other.on("closing").read("t")
            with pytest.raises(lv.InvalidOperation, match="nothing is deleted"):
                clean_up(other)
            assert not other.doctor().ok
            other.delete_ref("closing")
            clean_up(other)
            assert other.doctor().ok


def test_files_that_a_tag_needs_are_not_orphans_to_the_lake(table: Beside, tmp_path: Path) -> None:
    with table.connect() as lake:
        for number in range(3):
            lake.tag(f"t{number}")
            lake.run(lambda txn: txn.update("t", {"v": "v + 1"}, where="true"))
            clean_up(lake)
        found = [sorted(lake.on(f"t{n}").read("t")["v"].to_pylist())[0] for n in range(3)]
        assert found == [0, 1, 2]


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_kept_ref_stays_when_spark_expires_its_snapshot(table: Beside, kind: str) -> None:
    with table.connect() as lake:
        expected = bag(lake.read("t"))
        getattr(lake, kind)("closing")
        table.sql("UPDATE {t} SET v = 100 WHERE k < 5")
        table.sql("ALTER TABLE {t} ADD COLUMN more STRING")
        table.call("rewrite_data_files", ALL)
        assert lake.keep("closing").ok
        table.call("expire_snapshots", EXPIRE)
        table.call("remove_orphan_files")
    with table.connect() as new:
        assert bag(new.on("closing").read("t")) == expected
        assert new.doctor(files=True).ok
        clean_up(new)
        assert bag(new.on("closing").read("t")) == expected
        if kind == "tag":
            return
        new.on("closing").run(lambda txn: txn.update("t", {"v": "v + 1"}, where="k = 8"))
        assert sorted(new.on("closing").read("t")["v"].to_pylist())[-1] == 9

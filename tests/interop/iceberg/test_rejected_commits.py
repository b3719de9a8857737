"""Commits that the catalog of a table rejects for good, once they are decided (note 19)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import BadRequestError, ForbiddenError
from pyiceberg.table.update import AddSchemaUpdate

import lakevilla as lv
from lakevilla_testing.planted.every import PLANTED
from tests.support.stores import interrupted

FAST = lv.Settings(retry_base_seconds=0.001, retry_cap_seconds=0.01, publish_timeout_seconds=1.0)
ORDERS = "prod.sales.orders"


class Choosy(SqlCatalog):
    """A catalog that raises ``error`` for commits with a new schema, or for all."""

    error: Exception | None = None
    everything: bool = False

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        if self.error is not None and (
            self.everything or any(isinstance(one, AddSchemaUpdate) for one in updates)
        ):
            raise self.error
        return super().commit_table(table, requirements, updates)


@dataclass
class Place:
    root: Path
    events: list[lv.Event] = field(default_factory=list)
    made: list[Choosy] = field(default_factory=list)

    def catalog(self) -> Choosy:
        found = Choosy("c", uri=f"sqlite:///{self.root}/c.db", warehouse=f"file://{self.root}/wh")
        self.made.append(found)
        return found

    def connect(self, catalog: Choosy) -> lv.Lake:
        return lv.connect(
            str(self.root / "lake"),
            catalogs={"prod": catalog},
            settings=FAST,
            on_event=self.events.append,
        )


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    catalog = place.catalog()
    catalog.create_namespace("sales")
    rows = pa.table({"k": [1, 2], "v": [10, 20]})
    catalog.create_table("sales.orders", rows.schema).append(rows)
    yield place
    for one in place.made:
        one.engine.dispose()


def alter_and_sell(lake: lv.Lake) -> str:
    """Commit a change of the schema, which the catalog rejects, and one of another table."""
    with lake.transaction() as txn:
        txn.alter(ORDERS, add_columns={"note": "string"})
        txn.append("stock", {"k": [2]})
    return txn.id


def keys(lake: lv.Lake, table: str = ORDERS) -> list[int]:
    return sorted(lake.read(table)["k"].to_pylist())


@pytest.mark.parametrize(
    "error", [NotImplementedError("Writing V3 is not supported"), BadRequestError("no such update")]
)
def test_recover_cancels_a_commit_that_the_catalog_rejects_and_what_is_behind_goes_on(
    place: Place, error: Exception
) -> None:
    choosy = place.catalog()
    with place.connect(choosy) as lake:
        lake.create_table("stock", {"k": [1]})
        choosy.error = error
        txn = alter_and_sell(lake)
        assert any("rejects the commit" in one.message for one in place.events)
        lake.run(lambda txn: txn.append(ORDERS, {"k": [3], "v": [30]}))
        lake.run(lambda txn: txn.append(ORDERS, {"k": [4], "v": [40], "note": ["x"]}))
        report = lake.recover()
        found = [one for one in report.findings if one.severity == "error"]
        assert [one.txn_id for one in found][:1] == [txn]
        assert "rejects the commit" in found[0].message
        assert str(error) in found[0].message
        # The column does not exist, so the rows with values in it are cancelled, too.
        assert "have values in column note, which a cancelled commit had added" in found[1].message
        assert keys(lake) == [1, 2, 3]
        assert lake.table(ORDERS).schema.names == ["k", "v"]
        assert keys(lake, "stock") == [1, 2]
        assert lake.outcome(txn).state == "committed"
        assert lake.recover().ok
        lake.run(lambda txn: txn.append(ORDERS, {"k": [5], "v": [50]}))
    seen = place.catalog().load_table("sales.orders").scan().to_arrow()
    assert sorted(seen["k"].to_pylist()) == [1, 2, 3, 5]


def test_nothing_is_cancelled_while_the_catalog_rejects_everything(place: Place) -> None:
    choosy = place.catalog()
    with place.connect(choosy) as lake:
        lake.create_table("stock", {"k": [1]})
        choosy.error, choosy.everything = BadRequestError("no warehouse"), True
        txn = alter_and_sell(lake)
        report = lake.recover()
        assert not report.ok
        assert any("rejects every commit of this client" in one.message for one in report.findings)
        assert any(txn in one.message for one in report.findings)
        choosy.error = None
        lake.recover()
        assert lake.table(ORDERS).schema.names == ["k", "v", "note"]
    assert "note" in place.catalog().load_table("sales.orders").schema().column_names


def test_a_commit_that_the_rights_forbid_stays_for_a_client_with_rights(place: Place) -> None:
    choosy = place.catalog()
    with place.connect(choosy) as lake:
        lake.create_table("stock", {"k": [1]})
        choosy.error = ForbiddenError("no")
        alter_and_sell(lake)
        assert not lake.recover().ok
        with place.connect(place.catalog()) as other:
            assert other.recover().ok
            assert other.table(ORDERS).schema.names == ["k", "v", "note"]


@pytest.mark.parametrize(
    ("bug", "test"),
    [
        ("withdrawn_values_dropped", "cancels"),
        ("rights_taken_for_a_rejection", "rights"),
    ],
)
def test_a_planted_bug_of_rejected_commits_is_found(place: Place, bug: str, test: str) -> None:
    with PLANTED[bug].plant(), pytest.raises((AssertionError, IndexError)):
        if test == "rights":
            test_a_commit_that_the_rights_forbid_stays_for_a_client_with_rights(place)
        else:
            test_recover_cancels_a_commit_that_the_catalog_rejects_and_what_is_behind_goes_on(
                place, NotImplementedError("no")
            )


def test_a_commit_that_another_client_publishes_meanwhile_is_not_cancelled(place: Place) -> None:
    """The version that would make it unfit loses the race for the table's main branch."""
    choosy = place.catalog()
    with place.connect(choosy) as lake, place.connect(place.catalog()) as other:
        lake.create_table("stock", {"k": [1]})
        choosy.error = NotImplementedError("no such update")
        alter_and_sell(lake)
        attempts = iter(range(9))
        # The first request to the catalog is the commit itself, the second would make it unfit.
        with interrupted(
            lake,
            lambda key: key.startswith("catalog://") and next(attempts) == 1,
            lambda: other.recover(),
        ):
            report = lake.recover()
        assert report.ok
        assert lake.table(ORDERS).schema.names == ["k", "v", "note"]
    columns = place.catalog().load_table("sales.orders").schema().column_names
    assert columns == ["k", "v", "note"]


def test_a_table_of_version_3_is_refused_where_its_catalog_cannot_write_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    catalog = place.catalog()
    catalog.create_namespace("sales")
    table = catalog.create_table("sales.orders", pa.schema([("k", pa.int64())]))
    pointed = Path(table.metadata_location.removeprefix("file://"))
    text = pointed.read_text().replace('"format-version":2', '"format-version":3,"next-row-id":0')
    newer = pointed.with_name("00001-" + pointed.name.partition("-")[2])
    newer.write_text(text)
    catalog.drop_table("sales.orders")
    catalog.register_table("sales.orders", f"file://{newer}")
    with place.connect(catalog) as lake:
        assert keys(lake) == []
        with pytest.raises(lv.UnsupportedTableFeature, match="at most version 2"):
            lake.run(lambda txn: txn.append(ORDERS, {"k": [1]}))
    catalog.engine.dispose()

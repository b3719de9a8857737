"""A lake with tables in a catalog, seen by clients with that catalog, with another, and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app

ONE = pa.table({"id": pa.array([1], pa.int64())})


@dataclass
class Place:
    """A lake whose root has the warehouse of a catalog; one of two tables there is in the lake."""

    root: Path
    catalog: SqlCatalog
    properties: dict[str, str]

    def connect(self, **catalogs: SqlCatalog) -> lv.Lake:
        return lv.connect(self.root, catalogs=catalogs)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    root = tmp_path / "lake"
    given = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{root}/warehouse"}
    root.mkdir()
    catalog = SqlCatalog("prod", **given)
    for namespace in ("sales", "sales.east"):
        catalog.create_namespace(namespace)
    for name in ("sales.orders", "sales.items", "sales.east.returns"):
        catalog.create_table(name, ONE.schema).append(ONE)
    place = Place(root, catalog, given)
    with place.connect(prod=catalog) as lake:
        lake.create_table("own", ONE)
        lake.run(lambda txn: txn.append("prod.sales.orders", ONE))
    yield place
    catalog.close()


def other(tmp_path: Path) -> SqlCatalog:
    return SqlCatalog("other", uri=f"sqlite:///{tmp_path}/other.db", warehouse=f"file://{tmp_path}")


@pytest.mark.parametrize("has_another", [False, True])
def test_a_table_of_a_catalog_that_was_not_given_is_not_lost(
    place: Place, tmp_path: Path, has_another: bool
) -> None:
    catalogs = {"other": other(tmp_path)} if has_another else {}
    with place.connect(**catalogs) as lake:
        for report in (lake.doctor(), lake.verify()):
            (found,) = [one for one in report.findings if one.severity != "note"]
            assert (found.severity, found.kind) == ("warning", "catalog_not_given")
            assert found.table == "prod.sales.orders"
            assert "connect with catalogs={'prod': ...}" in found.message
    for catalog in catalogs.values():
        catalog.close()


def test_recovery_says_that_it_could_not_publish_in_a_catalog_that_was_not_given(
    place: Place,
) -> None:
    with place.connect() as lake:
        report = lake.maintain(["recover"])
        assert not report.ok
        assert [one.kind for one in report.findings if one.severity == "error"] == [
            "catalog_not_given"
        ]
        assert lake.metrics().values["lakevilla_commits_pending"] == 2
    with place.connect(prod=place.catalog) as lake:
        assert lake.maintain(["recover"]).ok
        assert lake.metrics().values["lakevilla_commits_pending"] == 0
        assert lake.doctor().ok


def test_discover_lists_tables_of_connected_catalogs_by_their_names(place: Place) -> None:
    with place.connect(prod=place.catalog) as lake:
        found = {one.name: one for one in lake.discover()}
        assert found.keys() == {"prod.sales.items", "prod.sales.east.returns"}
        assert {one.state for one in found.values()} == {"in_catalog"}
        assert found["prod.sales.items"].uri == str(place.root / "warehouse/sales/items")
        assert found["prod.sales.items"].format == "iceberg"
        assert lake.register(discover=True) == []
        lake.register("prod.sales.items")
        assert [one.name for one in lake.discover()] == ["prod.sales.east.returns"]


def test_discover_names_a_table_of_a_catalog_whose_metadata_is_missing(place: Place) -> None:
    for file in (place.root / "warehouse/sales/items/metadata").glob("*.metadata.json"):
        file.unlink()
    with place.connect(prod=place.catalog) as lake:
        found = {one.name: one for one in lake.discover()}
        assert found["prod.sales.items"].state == "refused"
        assert "metadata file that is missing" in found["prod.sales.items"].reason


def test_discover_names_a_catalog_that_can_not_be_listed(place: Place, tmp_path: Path) -> None:
    quick = lv.Settings(retry_limit=1, retry_base_seconds=0.001)
    lost = other(tmp_path)
    catalogs = {"prod": place.catalog, "other": lost}
    with lv.connect(place.root, catalogs=catalogs, settings=quick) as lake:
        (tmp_path / "other.db").unlink()
        lost.close()
        found = {one.name: one for one in lake.discover()}
        assert found["other"].state == "refused"
        assert "OperationalError" in found["other"].reason
        assert found["prod.sales.items"].state == "in_catalog"


def test_the_command_line_names_the_option_for_a_catalog(place: Place) -> None:
    said = CliRunner().invoke(app, ["doctor", str(place.root)])
    assert said.exit_code == 1
    assert "--option catalog.prod.PROPERTY=VALUE" in said.stdout
    options = [f"--option=catalog.prod.{key}={value}" for key, value in place.properties.items()]
    options.append("--option=catalog.prod.type=sql")
    listed = CliRunner().invoke(app, ["tables", str(place.root), "--json", *options])
    states = {row["name"]: row["state"] for row in json.loads(listed.stdout)}
    assert states["prod.sales.items"] == "in its catalog"
    assert states["prod.sales.orders"] == "in the lake"

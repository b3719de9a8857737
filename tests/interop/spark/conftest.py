"""Lakes that Spark shares with LakeVilla."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.fixtures.spark import connectors
from tests.interop.spark.beside import Beside
from tests.support.places import Place, fill
from tests.support.tables import accounts


@pytest.fixture
def beside(spark: SparkSession, tmp_path: Path) -> Beside:
    """Return an empty lake."""
    if "delta" not in connectors():
        pytest.skip("there is no delta connector for this Spark")
    return Beside(spark, Place(str(tmp_path)))


@pytest.fixture
def bank(beside: Beside) -> Beside:
    """Return a lake with two tables of four accounts, with 100 in each; two files."""
    fill(beside.place, {"bank": accounts(2), "other": accounts(1)})
    beside.place.write("bank", [{"id": 2, "balance": 100}, {"id": 3, "balance": 100}])
    return beside

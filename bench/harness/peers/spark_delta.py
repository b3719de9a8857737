"""Spark with its Delta connector."""

from __future__ import annotations

from pyspark.sql import SparkSession

from bench.harness.peers.spark import Statements, session
from bench.harness.store.places import Places


class SparkDelta(Statements):
    """Tables of Spark's catalog in a directory, whose logs the session keeps warm."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        directory = root.replace("s3://", "s3a://", 1)
        database = "delta_" + "".join(c if c.isalnum() else "_" for c in root.rsplit("/", 1)[-1])
        spark.sql(f"CREATE DATABASE {database} LOCATION '{directory}'")
        super().__init__(spark, f"spark_catalog.{database}", "delta")


def of(places: Places) -> SparkDelta:
    return SparkDelta(session(places), places.root("Spark+Delta"))

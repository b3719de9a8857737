"""Spark with its Iceberg connector."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from bench.harness.peers.spark import Statements, session
from bench.harness.store.places import Places


def settings_of_files(options: dict[str, str]) -> dict[str, str]:
    """The settings by which a catalog reaches its files; none are needed in a directory."""
    if not options:
        return {}
    return {
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": options["AWS_ENDPOINT_URL"],
        ".s3.path-style-access": "true",
        ".s3.access-key-id": options["AWS_ACCESS_KEY_ID"],
        ".s3.secret-access-key": options["AWS_SECRET_ACCESS_KEY"],
        ".client.region": options["AWS_REGION"],
        # Its default is of a newer SDK than the one that S3A was built with.
        ".http-client.type": "urlconnection",
    }


class SparkIceberg(Statements):
    """Tables of a JDBC catalog in a local SQLite file; files by Iceberg's own client of S3."""

    def __init__(
        self, spark: SparkSession, catalog: Path, root: str, options: dict[str, str]
    ) -> None:
        name = "".join(c if c.isalnum() else "_" for c in catalog.stem)
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": f"jdbc:sqlite:{catalog}",
            ".warehouse": root,
            ".jdbc.schema-version": "V1",
            # Each statement asks the catalog for the newest state, as all others here do.
            ".cache-enabled": "false",
        }
        settings |= settings_of_files(options)
        for key, value in settings.items():
            spark.conf.set(f"spark.sql.catalog.iceberg_{name}{key}", value)
        spark.sql(f"CREATE NAMESPACE iceberg_{name}.lake")
        super().__init__(spark, f"iceberg_{name}.lake", "iceberg")


def of(places: Places) -> SparkIceberg:
    return SparkIceberg(
        session(places),
        places.file("spark-iceberg.db"),
        places.root("Spark+Iceberg"),
        places.options,
    )

"""The one Spark session of a run, set up for small transactions on this machine.

It starts when a peer first asks for it, goes through the run's proxy, and its JVM ends with the
run: S3A and Delta cache what they know by path, and the next run uses the same paths.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from bench.harness.benchmark import NotInstalled
from bench.harness.store.places import Places

#: Versions that fit together. Hadoop's are those of Spark's own jars.
DELTA = "io.delta:delta-spark_4.1_2.13:4.4.0"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.4.2"
#: Of Spark 4.1, whose committer of small files needs no renaming in S3.
CLOUD = "org.apache.spark:spark-hadoop-cloud_2.13:4.1.1"
#: What hadoop-aws was built with, in the parts that are used: its bundle has 600 MB.
_PARTS = ("s3", "s3-transfer-manager", "sts", "kms", "apache-client", "url-connection-client")
_AWS = [f"software.amazon.awssdk:{part}:2.29.52" for part in _PARTS]
#: That bundle, and the clouds of others.
_EXCLUDED = (
    "software.amazon.awssdk:bundle",
    "org.apache.hadoop:hadoop-cloud-storage",
    "org.apache.hadoop:hadoop-azure",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "com.google.cloud.bigdataoss:gcs-connector",
    "org.eclipse.jetty:jetty-util",
    "org.eclipse.jetty:jetty-util-ajax",
)
#: Jars are fetched once, and kept in the checkout.
_IVY = Path(__file__).parents[3] / ".cache" / "ivy"
#: Connections that Iceberg's client keeps.
_JAVA = ["-Dhttp.maxConnections=64"]
#: A quick run is over before the second compiler has paid for itself: it takes half the time.
_QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
#: Tasks at a time. They wait for the store more than they compute, so more than there are cores.
_SLOTS = 8


def session(places: Places) -> SparkSession:
    """The session of a run."""
    found: SparkSession = places.kept("spark", lambda: _start(places), _end)
    return found


class Statements:
    """Tables of a Spark catalog; each statement is a transaction of its own."""

    def __init__(self, spark: SparkSession, namespace: str, provider: str) -> None:
        self.spark, self.namespace, self.provider = spark, namespace, provider
        self._frames: dict[int, tuple[pa.Table, DataFrame]] = {}

    def name(self, table: str) -> str:
        return f"{self.namespace}.`{table}`"

    def create(
        self, tables: Sequence[str], rows: pa.Table, properties: Mapping[str, str] | None = None
    ) -> None:
        for table in tables:
            writer = self.frame(rows).writeTo(self.name(table)).using(self.provider)
            for key, value in (properties or {}).items():
                writer = writer.tableProperty(key, value)
            writer.create()

    def append(self, tables: Sequence[str], rows: pa.Table) -> None:
        for table in tables:
            self.frame(rows).writeTo(self.name(table)).append()

    def read(self, table: str, where: str | None = None) -> pa.Table:
        condition = "" if where is None else f" WHERE {where}"
        return self.query(f"SELECT * FROM {self.name(table)}{condition}")

    def update(self, table: str, change: Mapping[str, str], where: str) -> None:
        given = ", ".join(f"{name} = {expression}" for name, expression in change.items())
        self.run(f"UPDATE {self.name(table)} SET {given} WHERE {where}")

    def delete(self, table: str, where: str) -> None:
        self.run(f"DELETE FROM {self.name(table)} WHERE {where}")

    def query(self, statement: str) -> pa.Table:
        return self.spark.sql(statement).toArrow()

    def run(self, statement: str) -> None:
        self.spark.sql(statement).collect()

    def frame(self, rows: pa.Table) -> DataFrame:
        """The rows as a local relation that is written as one file; made once for a table."""
        if id(rows) not in self._frames:
            frame = self.spark.createDataFrame(rows).coalesce(1)
            self._frames[id(rows)] = (rows, frame)  # with the rows: an id may be given again
        return self._frames[id(rows)][1]

    def twin(self) -> Statements:
        """What another client of the same tables works with: the session, which all share."""
        return self

    def literal(self, text: str) -> str:
        """A string as SQL has it here."""
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def is_conflict(self, error: Exception) -> bool:
        """Whether a statement lost to one that was committed meanwhile."""
        return any(name in str(error) for name in _CONFLICTS)

    def close(self) -> None:
        """The session ends with the run."""


#: As errors of Delta and of Iceberg name it.
_CONFLICTS = ("DELTA_CONCURRENT", "io.delta.exceptions.", "CommitFailedException")


def _start(places: Places) -> SparkSession:
    _java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = SparkConf(loadDefaults=False).setMaster(f"local[{_SLOTS}]").setAppName("lakevilla-bench")
    conf.setAll(list(_settings(places).items()))
    log = places.file("spark.log")
    with log.open("wb") as stream:
        try:
            outputs = {"stdout": stream, "stderr": stream}
            # pyspark has left this function of its own without types.
            gateway = launch_gateway(conf, outputs)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise NotInstalled(_why(log)) from error
    context = SparkContext(conf=conf, gateway=gateway)
    context.setLogLevel("ERROR")
    return SparkSession(context)


def _end(spark: SparkSession) -> None:
    """Stop the session and its JVM."""
    gateway: Any = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with its standard input
    try:
        gateway.proc.wait(20)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def _java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which(f"{home}/bin/java" if home else "java") is None:
        raise NotInstalled("Spark needs Java 17: tests/java.sh installs it, or says how")


def _why(log: Path) -> str:
    """Why the JVM did not start: what it said last."""
    said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    last = next((line for line in reversed(said) if "Exception" in line or "Error" in line), None)
    return (
        f"Spark did not start ({last or 'it said nothing'}): it needs Java 17, and fetches its "
        f"jars from Maven Central to {_IVY}"
    )


def _settings(places: Places) -> dict[str, str]:
    distant = places.proxy is not None or "://" in places.profile  # or a store of one's own
    packages = [DELTA, ICEBERG, SQLITE, *([HADOOP_AWS, CLOUD, *_AWS] if distant else [])]
    return {
        "spark.jars.packages": ",".join(packages),
        "spark.jars.excludes": ",".join(_EXCLUDED),
        "spark.jars.ivy": str(_IVY),
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join([*_JAVA, *(_QUICK if places.quick else [])]),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",  # clients share the session
        # A shuffle of a hundred rows needs no two hundred tasks.
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.leafNodeDefaultParallelism": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": (
            "io.delta.sql.DeltaSparkSessionExtension,"
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(places.directory / "spark-warehouse"),
        **(_of_s3(places.options) if distant else {}),
    }


_OPTIONS = {
    "endpoint": "AWS_ENDPOINT_URL",
    "endpoint.region": "AWS_REGION",
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
}


def _of_s3(options: Mapping[str, str]) -> dict[str, str]:
    """S3A as its guide to performance has it, and Delta's own way to list a log."""
    s3a = {
        **{name: options[key] for name, key in _OPTIONS.items() if key in options},
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        # No probes before a file is written or a directory made, and none for its parents.
        "performance.flags": "create,mkdir,delete,open",
        "directory.marker.retention": "keep",
        "fast.upload.buffer": "bytebuffer",  # what is uploaded does not go to the disk first
        "audit.enabled": "false",
    }
    return {
        **{f"spark.hadoop.fs.s3a.{key}": value for key, value in s3a.items()},
        # A log is listed from its newest checkpoint on.
        "spark.hadoop.delta.enableFastS3AListFrom": "true",
        # Checksums of versions are written in place: a rename is a copy and a dozen probes.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
        ),
    }

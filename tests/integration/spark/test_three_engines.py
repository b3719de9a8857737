"""A PySpark driver, an embedded client and deltalake in three processes, on the same two tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakevilla as lv
from tests.integration.spark.import_path import import_path
from tests.integration.spark.three_engines import OWN, PIECES, SHARED, check
from tests.support.places import Place
from tests.support.search import how_many
from tests.support.tables import in_order

pytestmark = [
    pytest.mark.xdist_group("spark"),  # one session at a time
]

SECONDS = how_many(3, whole=10, soak=60)
#: So many transactions of Spark's at least, however slow the machine is.
LEAST = 3
HERE = Path(__file__).parent
KINDS = ("spark", "embedded", "deltalake")


@contextmanager
def running(root: str) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """The three clients, each ready and waiting for the word."""
    environment = {**os.environ, "PYTHONPATH": import_path()}
    clients = {
        kind: subprocess.Popen(
            [sys.executable, str(HERE / "three_engines.py"), kind, root],
            env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for kind in KINDS
    }  # fmt: skip
    try:
        for kind, client in clients.items():
            assert client.stdout is not None
            assert any(line == "READY\n" for line in client.stdout), f"{kind} did not begin"
        yield clients
    finally:
        for client in clients.values():
            client.kill()
            client.wait()


@pytest.mark.timeout(400)
def test_spark_duckdb_and_deltalake_at_once_lose_nothing_and_tear_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place(str(tmp_path / "lake"))
    places = (SHARED, *OWN.values())
    for number in places:
        for table, pieces in (("a", PIECES // len(places)), ("b", 0)):
            place.write(table, [{"id": number, "pieces": pieces, "token": ""}])
    with running(place.root) as clients:
        for client in clients.values():
            assert client.stdin is not None
            client.stdin.write("go\n")
            client.stdin.flush()
        end = time.monotonic() + SECONDS
        spark_does = clients["spark"].stdout
        assert spark_does is not None
        for number, _ in enumerate(spark_does, 1):
            if number >= LEAST and time.monotonic() > end:
                break
        for client in clients.values():
            assert client.stdin is not None
            client.stdin.close()
        told = {kind: _told(kind, client) for kind, client in clients.items()}
    assert min(len(tokens) for tokens in told.values()) >= LEAST, told

    with place.connect() as lake:
        lake.recover()
        report = lake.doctor()
        assert report.ok, report.findings
        with lake.snapshot() as state:
            rows = {table: in_order(state.read(table)) for table in "ab"}
    check(rows["a"], rows["b"])
    # What was acknowledged is there once in each table it belongs to, and nothing else is.
    by_lakevilla = Counter(["spark.first", *told["spark"], *told["embedded"]])
    assert set(by_lakevilla.values()) == {1}
    assert _tokens(rows["a"]) == by_lakevilla + Counter(told["deltalake"])
    assert _tokens(rows["b"]) == by_lakevilla
    for table in "ab":
        theirs = spark.read.format("delta").load(place.uri(table)).toArrow()
        assert in_order(theirs) == place.seen(table) == rows[table]
        for reader in ("native", "python"):
            with lv.connect(place.root, spark=spark, spark_reader=reader) as by_spark:  # type: ignore[arg-type]
                frame: Any = by_spark.snapshot().read(table)
                assert in_order(frame.toArrow()) == rows[table]


def _told(kind: str, client: subprocess.Popen[str]) -> list[str]:
    assert client.stdout is not None
    results = [line for line in client.stdout if line.startswith("RESULT ")]
    assert client.wait(timeout=100) == 0, f"{kind} failed"
    tokens: list[str] = json.loads(results[0].removeprefix("RESULT "))
    return tokens


def _tokens(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(row["token"] for row in rows if row["token"])

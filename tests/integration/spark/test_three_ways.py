"""The pipeline of the docs by frames, by SQL and by streams, with a driver that is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from tests.integration.spark.import_path import import_path
from tests.support.search import first_seed

pytestmark = [
    pytest.mark.xdist_group("spark"),  # one session at a time
]

HERE = Path(__file__).parent
KILLS = 2
DAYS = ["2026-01-01", "2026-01-02", "2026-01-01"]
TABLES = ("bronze", "silver", "gold")
#: Of the driver: three for each file, the frames' gold, and three streams.
STEPS = 3 * len(DAYS) + 4
Counts = dict[str, Counter[tuple[object, ...]]]


def arrive(directory: Path) -> Counts:
    """Files of orders, and what the pipeline is to make of them."""
    directory.mkdir()
    expected: Counts = {table: Counter() for table in TABLES}
    sold: dict[str, int] = {}
    of_kind: Counter[str] = Counter()
    for number, day in enumerate(DAYS):
        rows: list[dict[str, Any]] = [
            {"id": 10 * number + i, "day": day, "sku": ("tea", "rice")[i % 2], "amount": i + number}
            for i in range(1, 6)
        ]
        path = directory / f"{number}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (number + 1, number + 1))  # the order in which a stream reads them
        expected["bronze"].update(tuple(row.values()) for row in rows)
        sold[day] = sum(row["amount"] for row in rows)
        for row in rows:
            of_kind[row["sku"]] += row["amount"]
    expected["silver"].update(sold.items())
    expected["gold"].update(of_kind.items())
    return expected


def drive(arguments: list[str], kill_at: tuple[int, float] | None) -> bool:
    """Run the driver; kill it so many seconds after a step. Whether it came to its end."""
    driver = subprocess.Popen(
        [sys.executable, str(HERE / "three_ways.py"), *arguments],
        env={**os.environ, "PYTHONPATH": import_path()},
        text=True,
        stdout=subprocess.PIPE,
        start_new_session=True,  # its JVM and Python workers go with it
    )
    timer = None
    steps = 0

    def kill() -> None:
        os.killpg(driver.pid, signal.SIGKILL)

    try:
        assert driver.stdout is not None
        for line in driver.stdout:
            steps += line == "STEP\n"
            if timer is None and kill_at is not None and steps == kill_at[0]:
                timer = threading.Timer(kill_at[1], kill)
                timer.start()
            if line.startswith("RESULT"):
                return True
        return False
    finally:
        if timer is not None:
            timer.cancel()
        if driver.poll() is None:
            kill()
        driver.wait()


@pytest.mark.timeout(2400)
def test_frames_sql_and_streams_make_equal_tables_however_often_they_are_killed(
    tmp_path: Path,
) -> None:
    expected = arrive(tmp_path / "incoming")
    root = str(tmp_path / "lake")
    arguments = [root, str(tmp_path / "incoming"), str(tmp_path / "checkpoints")]
    seed = first_seed()
    instants = random.Random(seed)
    ended = False
    for _ in range(KILLS):
        ended = drive(arguments, (instants.randint(1, STEPS), instants.uniform(0, 3))) or ended
    assert drive(arguments, None), f"seed {seed}"
    with lv.connect(root, settings=lv.Settings(max_age_seconds=0)) as lake:
        for way in "fqs":
            for table in TABLES:
                rows = lake.snapshot().read(f"{way}_{table}").to_pylist()
                found = Counter(tuple(row.values()) for row in rows)
                assert found == expected[table], f"{way}_{table}, seed {seed}, ended {ended}"
        lake.gc()
        assert lake.doctor().ok
    entries = "".join(path.read_text() for path in Path(root).glob("*/_delta_log/*.json"))
    files = [path.name for path in Path(root).glob("*/**/*.parquet")]
    orphans = [name for name in files if name.startswith("lv-") and name not in entries]
    assert not orphans

"""``make bench-smoke``: LakeVilla beside deltalake and DuckLake, some minutes.

The numbers in brackets are the project's targets. Appends are of 100 rows to
warm tables; the ``s3`` part runs against an S3 server on loopback behind a
proxy with the latency of S3, which counts requests by verb.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import lakevilla as lv
from bench import million_files
from bench.harness import (
    Result,
    Series,
    Target,
    in_subprocess,
    interleave,
    ministack,
    report,
)
from bench.latency_proxy import LatencyProxy, latency_proxy
from bench.peers import Deltalake, DuckLake

ROWS = pa.table(
    {
        "id": pa.array(range(100), pa.int64()),
        "name": [f"name {number}" for number in range(100)],
        "price": [number / 7 for number in range(100)],
    }
)
WIDE = 8  # tables in the wide transaction


class LakeVilla:
    """LakeVilla as a user has it: one connection, warm tables."""

    def __init__(self, root: str, options: dict[str, str] | None = None) -> None:
        self.lake = lv.connect(root, storage_options=options)

    def create(self, tables: list[str]) -> None:
        with self.lake.transaction() as txn:
            for table in tables:
                txn.create_table(table, ROWS)

    def append_alone(self, table: str) -> None:
        with self.lake.transaction(features=lv.Feature.NONE) as txn:
            txn.append(table, ROWS)

    def append(self, tables: list[str], wait: str = "published") -> None:
        with self.lake.transaction(wait=wait) as txn:
            for table in tables:
                txn.append(table, ROWS)

    def close(self) -> None:
        """Wait for the background; the lake goes on to work."""
        self.lake.close()


def local(directory: Path, repeats: int) -> list[Result]:
    """Target 11: a local directory, no added latency."""
    ours = LakeVilla(str(directory / "ours"))
    ours.create(["alone", "a", "b"])
    theirs = Deltalake(str(directory / "theirs"), {})
    theirs.create(["alone", "a", "b"], ROWS)
    duck = DuckLake(directory / "catalog.ducklake", str(directory / "duck"), {})
    duck.create(["a", "b"], ROWS)
    one = interleave(
        "local: append",
        {
            "LakeVilla (NONE)": lambda _: ours.append_alone("alone"),
            "deltalake": lambda _: theirs.append(["alone"], ROWS),
        },
        repeats=repeats * 4,
        warm_up=3,
        settle=ours.close,
    )
    one.ratio("[11] local append / deltalake", 0.35, "LakeVilla (NONE)", "deltalake")
    two = interleave(
        "local: 2 tables",
        {
            "LakeVilla": lambda _: ours.append(["a", "b"]),
            "DuckLake": lambda _: duck.append(["a", "b"], ROWS),
            "deltalake, not atomic": lambda _: theirs.append(["a", "b"], ROWS),
        },
        repeats=repeats * 4,
        warm_up=3,
        settle=ours.close,
    )
    two.ratio("[11] local, 2 tables / DuckLake", 0.40, "LakeVilla", "DuckLake")
    ours.close()
    duck.close()
    return [one, two]


def distant(directory: Path, repeats: int, proxy: LatencyProxy) -> list[Result]:
    """Targets 1, 3 and 6: a store with the latency of S3."""
    options = proxy.storage_options
    wide = [f"wide{number}" for number in range(WIDE)]
    ours = LakeVilla("s3://lake/ours", options)
    ours.create(["alone", *wide])
    theirs = Deltalake("s3://lake/theirs", options)
    theirs.create(["alone", *wide], ROWS)
    duck = DuckLake(directory / "distant.ducklake", "s3://lake/duck", options)
    duck.create(wide, ROWS)

    def counted(name: str, systems: dict[str, Callable[[int], None]]) -> Result:
        return interleave(
            name,
            systems,
            repeats=repeats,
            warm_up=2,
            reset=proxy.reset,
            count=lambda: proxy.requests,
            settle=ours.close,
        )

    append = counted(
        "s3: append",
        {
            "LakeVilla (NONE)": lambda _: ours.append_alone("alone"),
            "deltalake": lambda _: theirs.append(["alone"], ROWS),
        },
    )
    append.ratio("[1] append / deltalake", 0.45, "LakeVilla (NONE)", "deltalake")
    made = append.of("LakeVilla (NONE)").requests
    append.targets.append(Target("[1] requests of an append", 3, sum(made.values())))

    many = counted(
        f"s3: {WIDE} tables",
        {
            "LakeVilla, decided": lambda _: ours.append(wide, "decided"),
            "LakeVilla, published": lambda _: ours.append(wide),
            "DuckLake": lambda _: duck.append(wide, ROWS),
            "deltalake, not atomic": lambda _: theirs.append(wide, ROWS),
        },
    )
    many.ratio("[3] acknowledged / DuckLake", 0.35, "LakeVilla, decided", "DuckLake")
    many.ratio("[3] acknowledged / deltalake", 0.08, "LakeVilla, decided", "deltalake, not atomic")
    made = many.of("LakeVilla, published").requests
    many.targets.append(Target("[3] PUT of 8 tables", 2 * WIDE + 2, made.get("PUT", 0)))
    reads = sum(made.get(verb, 0) for verb in ("GET", "HEAD", "LIST"))
    many.targets.append(Target("[3] GET of 8 tables", WIDE + 1, reads))

    theirs.create(["cold"], ROWS)
    for _ in range(9):
        theirs.append(["cold"], ROWS)
    cold = counted(
        "s3: cold open, 10 commits",
        {
            "LakeVilla": lambda _: open_cold("s3://lake/theirs", "cold", options),
            "deltalake": lambda _: theirs.open_cold("cold"),
        },
    )
    ours_made, theirs_made = (
        sum(cold.of(system).requests.values()) for system in ("LakeVilla", "deltalake")
    )
    cold.targets.append(Target("[6] requests of a cold open", theirs_made / 2, ours_made))
    ours.close()
    duck.close()
    return [append, many, cold]


def open_cold(root: str, table: str, options: dict[str, str]) -> None:
    """Open a table that this process knows nothing of."""
    million_files.open_table(root, table, options)


def million(directory: Path, repeats: int) -> list[Result]:
    """Target 12, the parts that need no data: open, prune, append."""
    large, small = directory / "large", directory / "small"
    million_files.create(large, 1_000_000)
    million_files.create(small, 100)
    opened = Result("1,000,000 files: open and prune", [])
    series = {system: Series(system) for system in ("lakevilla", "deltalake")}
    for _ in range(repeats):
        for system, measured in series.items():
            seen = in_subprocess("bench.million_files", system, str(large))
            measured.seconds.append(seen["seconds"])
            measured.peak_bytes = max(measured.peak_bytes or 0, int(seen["peak_bytes"]))
    opened.series = list(series.values())
    opened.ratio("[12] open and prune / deltalake", 0.3, "lakevilla", "deltalake")
    ours, theirs = (series[system].peak_bytes or 0 for system in ("lakevilla", "deltalake"))
    opened.targets.append(Target("[12] memory / deltalake", 0.4, ours / max(theirs, 1)))

    system = LakeVilla(str(directory))
    rows = pa.table({"part": pa.array([1] * 100, pa.int32()), "id": range(100)})

    def append(table: str) -> None:
        with system.lake.transaction(features=lv.Feature.NONE) as txn:
            txn.append(table, rows)

    appended = interleave(
        "append to a table of n files",
        {"1,000,000": lambda _: append("large"), "100": lambda _: append("small")},
        repeats=repeats * 4,
        warm_up=3,
        settle=system.close,
    )
    appended.ratio("[12] append, 1,000,000 / 100 files", 1.2, "1,000,000", "100")
    system.close()
    return [opened, appended]


def main() -> int:
    """Run the parts asked for; exit status 0 if every target was met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--parts", default="local,s3,million")
    parser.add_argument("--profile", default="s3", choices=["zero", "s3", "express"])
    parser.add_argument("--json", type=Path, default=Path("bench/results/smoke.json"))
    parser.add_argument("--strict", action="store_true", help="exit 1 where a target was missed")
    options = parser.parse_args()
    parts = set(options.parts.split(","))
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="lakevilla-bench-") as name:
        directory = Path(name)
        if "local" in parts:
            results += local(directory / "local", options.repeats)
        if "s3" in parts:
            with ministack() as endpoint, latency_proxy(endpoint, options.profile) as proxy:
                results += distant(directory, options.repeats, proxy)
        if "million" in parts:
            results += million(directory / "million", options.repeats)
    parameters = {"repeats": options.repeats, "profile": options.profile, "rows": len(ROWS)}
    met = report(results, options.json, parameters)
    return 1 if options.strict and not met else 0


if __name__ == "__main__":
    sys.exit(main())

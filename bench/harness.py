"""Interleaved repeats, medians, ratios, and the JSON that a run leaves behind."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import resource
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

PACKAGES = ("lakevilla", "deltalake", "duckdb", "pyarrow", "obstore")


@dataclass
class Series:
    """Repeats of one operation by one system: seconds, and requests of the last repeat."""

    system: str
    seconds: list[float] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    peak_bytes: int | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass
class Target:
    """What was aimed at, and what came out."""

    name: str
    limit: float
    value: float

    @property
    def met(self) -> bool:
        return self.value <= self.limit


@dataclass
class Result:
    """One comparison."""

    name: str
    series: list[Series]
    targets: list[Target] = field(default_factory=list)

    def of(self, system: str) -> Series:
        """The series of one system."""
        return next(series for series in self.series if series.system == system)

    def ratio(self, target: str, limit: float, system: str, peer: str) -> None:
        """Aim at a ratio of medians."""
        value = self.of(system).median / self.of(peer).median
        self.targets.append(Target(target, limit, value))


def interleave(
    name: str,
    systems: Mapping[str, Callable[[int], None]],
    *,
    repeats: int,
    warm_up: int = 1,
    count: Callable[[], Mapping[str, int]] | None = None,
    reset: Callable[[], None] | None = None,
    settle: Callable[[], None] | None = None,
) -> Result:
    """Run each system in turn, ``repeats`` times over.

    Taking turns lets a busy moment of the machine hurt all alike. ``settle``
    waits, unmeasured, for what an operation left to the background, so that the
    next one's time and requests are its own.
    """
    result = Result(name, [Series(system) for system in systems])
    for turn in range(-warm_up, repeats):
        for series, operation in zip(result.series, systems.values(), strict=True):
            if reset is not None:
                reset()
            started = time.perf_counter()
            operation(turn + warm_up)
            elapsed = time.perf_counter() - started
            if turn >= 0:
                series.seconds.append(elapsed)
                if count is not None:
                    series.requests = dict(count())
            if settle is not None:
                settle()
    return result


@contextmanager
def ministack() -> Iterator[str]:
    """An S3 server on loopback; its endpoint."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "ministack"],
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith("AWS_")},
            "GATEWAY_PORT": str(port),
            "BIND_HOST": "127.0.0.1",
            "SERVICES": "s3",
            "SFTP_ENABLED": "0",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            # Another server may have taken the port: never talk to that one.
            if server.poll() is not None:
                raise RuntimeError(f"ministack ended with status {server.returncode}")
            request = urllib.request.Request(f"{endpoint}/lake", method="PUT")
            try:
                urllib.request.urlopen(request, timeout=2).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        else:
            raise RuntimeError("ministack did not start")
        yield endpoint
    finally:
        server.terminate()
        server.wait(20)


def in_subprocess(module: str, *arguments: str) -> dict[str, float]:
    """Run ``python -m module arguments`` and take the JSON object it prints last."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def peak_bytes() -> int:
    """The most memory this process has held."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux it starts with what the parent held at the fork.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def report(results: list[Result], path: Path, parameters: Mapping[str, object]) -> bool:
    """Print the table, write the JSON; whether every target was met."""
    versions = {}
    for package in PACKAGES:
        versions[package] = importlib.metadata.version(package)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(
            {
                "machine": {"cpus": os.cpu_count(), "platform": platform.platform()},
                "python": platform.python_version(),
                "versions": versions,
                "parameters": dict(parameters),
                "results": [asdict(result) for result in results],
            },
            indent=1,
        )
    )
    table = Table(
        "operation", "system", "median", "min", "max", "requests", "memory", box=box.SIMPLE_HEAD
    )
    for result in results:
        for series in result.series:
            requests = " ".join(f"{verb} {n}" for verb, n in sorted(series.requests.items()))
            low, high = min(series.seconds), max(series.seconds)
            memory = "" if series.peak_bytes is None else f"{series.peak_bytes / 1e6:.0f} MB"
            table.add_row(
                result.name,
                series.system,
                f"{series.median * 1e3:.1f} ms",
                f"{low * 1e3:.1f}",
                f"{high * 1e3:.1f}",
                requests,
                memory,
            )
    targets = Table("target", "at most", "measured", "", box=box.SIMPLE_HEAD)
    met = True
    for result in results:
        for target in result.targets:
            met &= target.met
            mark = "[green]✓[/]" if target.met else "[red]✗[/]"
            targets.add_row(target.name, f"{target.limit:.2f}", f"{target.value:.2f}", mark)
    console = Console()
    console.print(table)
    console.print(targets)
    console.print(f"written to {path}")
    return met

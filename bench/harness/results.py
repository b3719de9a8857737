"""What a run leaves behind: ``result.json``, from which plots and the report are drawn again."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.harness.parameters import Value
from bench.harness.targets import Target
from bench.harness.words import plural

#: Of whatever is installed, the version counts.
PACKAGES = ("lakevilla", "deltalake", "pyiceberg", "duckdb", "pyarrow", "obstore", "pyspark")
VERBS = ("get", "put", "head", "list", "delete")
#: What a table of series shows, in a terminal and on the page.
COLUMNS = (
    "system",
    "parameters",
    "n",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "per second",
    "requests a repeat",
    "aborts",
    "redos",
    "also",
)


class BrokenResult(ValueError):
    """A file that is no result of a benchmark, or one that was cut off."""


@dataclass(slots=True)
class Series:
    """What one system did with one set of parameters.

    Attributes
    ----------
    n : int
        Operations that were measured.
    p50_ms, p95_ms, p99_ms, mean_ms, min_ms, max_ms : float
        Their latencies in milliseconds.
    throughput_per_s : float
        Operations a second, all clients together; the median of the repeats.
    without_commit_per_s : float
        The same if ending a transaction of many operations took no time.
    requests : dict
        Requests of the store by verb, in the last repeat.
    bytes_moved : dict
        Bytes of bodies that were ``read`` from the store and ``written`` to it, in the last repeat.
    metadata : dict
        Of these requests, those that are not for the rows of a table, where they were told apart.
    aborts, redos : int
        Transactions that had to run again, and operations that were redone within one.
    phases_ms : dict
        Milliseconds of an operation in a phase, where they were measured: by ``kind/phase`` the
        mean of all operations. Medians of the repeats where a benchmark tells them itself.
    figures : dict
        Whatever else was measured, with its unit in its name; medians of the repeats.
    kinds : dict
        Of each kind of operation the latencies: ``n``, ``min``, ``p5`` to ``p99``, ``max``,
        ``mean``.
    deaths : list of str
        Clients that ended before their work did, and why; ``n`` has what they did until then.
    repeats : list of dict
        The figures of each repeat, so that a median stands beside its minimum and maximum.
    """

    system: str
    params: dict[str, Value]
    n: int = 0
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0
    mean_ms: float = 0.0
    min_ms: float = 0.0
    max_ms: float = 0.0
    throughput_per_s: float = 0.0
    without_commit_per_s: float = 0.0
    requests: dict[str, int] = field(default_factory=dict)
    bytes_moved: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, int] = field(default_factory=dict)
    aborts: int = 0
    redos: int = 0
    phases_ms: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    kinds: dict[str, dict[str, float]] = field(default_factory=dict)
    deaths: list[str] = field(default_factory=list)
    repeats: list[dict[str, float]] = field(default_factory=list)

    @property
    def described(self) -> str:
        """Its parameters in words."""
        return ", ".join(f"{key} {value}" for key, value in self.params.items())

    def of_repeats(self, figure: str) -> list[float]:
        """One figure of each repeat; ``per_s`` is operations a second."""
        if figure == "per_s":
            return [one["n"] / one["seconds"] for one in self.repeats if one["seconds"]]
        return [one[figure] for one in self.repeats if figure in one]

    def cells(self) -> list[str]:
        """Its row under ``COLUMNS``."""
        medians = self.of_repeats("p50_ms")
        spread = f" ({min(medians):.4g} to {max(medians):.4g})" if len(medians) > 1 else ""
        return [
            self.system,
            self.described,
            str(self.n),
            f"{self.p50_ms:.4g}{spread}",
            *(f"{value:.4g}" for value in (self.p95_ms, self.p99_ms)),
            f"{self.throughput_per_s:.4g}",
            " ".join(f"{count} {verb}" for verb, count in self.requests.items() if count),
            str(self.aborts),
            str(self.redos),
            ", ".join(f"{name} {value:.4g}" for name, value in self.figures.items()),
        ]


@dataclass(slots=True)
class Result:
    """One run of one benchmark.

    ``checks`` must hold; ``observed`` is what may hold or not, for a figure to show.
    """

    benchmark: str
    seed: int
    profile: str
    quick: bool
    parameters: dict[str, Value]
    began: str = ""
    machine: dict[str, Value] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    series: list[Series] = field(default_factory=list)
    checks: dict[str, bool] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    observed: dict[str, bool] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def ok(self) -> bool:
        """Whether each check held, no client died and each series did something.

        A target may be missed.
        """
        return not self.broken

    @property
    def title(self) -> str:
        """The head of its section on a page."""
        quick = ", a quick run" if self.quick else ""
        return f"{self.benchmark}, profile {self.profile}{quick}"

    @property
    def remarks(self) -> list[str]:
        """What a reader of its figures must know."""
        quick = ["a quick run: figures for trying, not for publishing"] if self.quick else []
        return [*self.notes, *quick]

    @property
    def held(self) -> list[str]:
        """The checks that held."""
        return [name for name, holds in self.checks.items() if holds]

    @property
    def broken(self) -> list[str]:
        """What went wrong, in words: failed checks, dead clients, series that did nothing."""
        return [
            *(f"the check failed: {name}" for name, holds in self.checks.items() if not holds),
            *self.died,
            *(f"no operation was done: {what}" for what in self.idle),
        ]

    @property
    def died(self) -> list[str]:
        """The series whose clients died, and why the first did; ``deaths`` has all of them."""
        return [
            f"{plural(len(one.deaths), 'client')} of {one.system} died{one.described and ', '}"
            f"{one.described}: {'' if len(one.deaths) == 1 else 'the first is '}{one.deaths[0]}"
            for one in self.series
            if one.deaths
        ]

    @property
    def idle(self) -> list[str]:
        """The series that did nothing though no client of theirs died: they measure nothing.

        After Ctrl-C that is no wonder.
        """
        if self.interrupted:
            return []
        return [
            ", ".join(filter(None, (one.system, one.described)))
            for one in self.series
            if not one.n and not one.deaths
        ]

    @property
    def made_with(self) -> str:
        """The machine and the versions, in words."""
        pairs = [
            ", ".join(f"{k} {v}" for k, v in of.items()) for of in (self.machine, self.versions)
        ]
        return "; ".join(pairs)

    def find(self, system: str, **params: Value) -> Series | None:
        """The series of a system with these parameters, whatever others it has."""
        for one in self.series:
            if one.system == system and params.items() <= one.params.items():
                return one
        return None

    def save(self, directory: Path) -> Path:
        """Write ``result.json``."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "result.json"
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path


def load(path: Path) -> Result:
    """A result that was saved."""
    try:
        found = json.loads(path.read_text())
        found["series"] = [Series(**one) for one in found["series"]]
        found["targets"] = [Target(**one) for one in found.get("targets", ())]
        result = Result(**found)
        for rows in (result.series, result.targets):
            for one in rows:
                one.cells()  # figures are numbers
        if not isinstance(result.began, str):
            raise TypeError("it does not say when it began")
        return result
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BrokenResult(
            f"{path} is no result of a benchmark ({error}): remove it, or run the benchmark again"
        ) from error


def this_machine() -> dict[str, Value]:
    """What it ran on, as far as that has a bearing on figures."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpus": os.cpu_count() or 0,
        "memory_gib": round(memory / 2**30, 1),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Of the packages that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def by_verb(counts: Mapping[str, int]) -> dict[str, int]:
    """Requests by verb, each verb named."""
    lower = {verb.lower(): count for verb, count in counts.items()}
    lower["put"] = lower.get("put", 0) + lower.pop("post", 0)
    return {verb: lower.get(verb, 0) for verb in VERBS}

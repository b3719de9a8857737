"""The gauges of a lake: their names, units and meanings, and their text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from lakevilla.display import HtmlFields

__all__ = ["GAUGES", "Gauge", "LakeMetrics"]

#: The suffixes of names for Prometheus, by unit. A ``time`` is stored as seconds since the epoch,
#: so that it ages without another scrape; OpenTelemetry gets the age.
_SUFFIXES = {"": "", "s": "_seconds", "By": "_bytes", "time": "_timestamp_seconds"}


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number about a lake.

    ``label`` names what has a number of its own each, such as a table; "" if the lake has one
    number.
    """

    name: str
    help: str
    unit: Literal["", "s", "By", "time"] = ""
    label: str = ""

    @property
    def prometheus(self) -> str:
        """The name for Prometheus."""
        return f"lakevilla_{self.name.replace('.', '_')}{_SUFFIXES[self.unit]}"

    @property
    def opentelemetry(self) -> str:
        """The name for OpenTelemetry, whose backends take units, and no ages from times."""
        return f"lakevilla.{self.name}{'.age' if self.unit == 'time' else ''}"


_ALL = (
    Gauge("up", "1 if the lake could be read, else 0."),
    Gauge("head", "The time of the newest commit.", "time"),
    Gauge("head.version", "The newest global version."),
    Gauge("head.unconfirmed", "1 if HEAD was rebuilt and nobody has confirmed the report."),
    Gauge("tables", "Tables in the lake."),
    Gauge("tables.of_unknown_size", "Tables whose files and bytes HEAD does not know."),
    Gauge("files", "Data files of the tables of known size."),
    Gauge("rows", "Rows of the tables of known size."),
    Gauge("size", "Bytes in data files of the tables of known size.", "By"),
    Gauge("small_files", "The least number of files below half of the target size."),
    Gauge("commits.pending", "Commits that neither HEAD nor upkeep knows to be in a table's log."),
    Gauge("oldest_pending_commit", "The time of the oldest of these.", "time"),
    Gauge("transactions", "Transactions that are in a queue or were saved.", label="state"),
    Gauge("oldest_transaction", "The beginning of the oldest of these.", "time"),
    Gauge("queue.depth", "Places in a table's queue, by the last heartbeats.", label="table"),
    Gauge("reservations", "Reservations of tables in HEAD."),
    Gauge("proposals", "Commits and operations in the inbox."),
    Gauge("upkeep", "The time at which a task of upkeep last ended.", "time", "task"),
    Gauge("upkeep.ok", "1 if that task had no findings, else 0.", label="task"),
    Gauge("table.files", "Data files of a table.", label="table"),
    Gauge("table.rows", "Rows of a table.", label="table"),
    Gauge("table.size", "Bytes in data files of a table.", "By", "table"),
    Gauge("table.small_files", "The least number of small files of a table.", label="table"),
    Gauge("scrape", "The time of this scrape.", "time"),
    Gauge("scrape.duration", "The time that it took.", "s"),
    Gauge("scrape.requests", "The requests to the store that it took."),
)
#: All gauges, by their names for Prometheus.
GAUGES: Mapping[str, Gauge] = {gauge.prometheus: gauge for gauge in _ALL}


@dataclass(frozen=True, slots=True)
class LakeMetrics(HtmlFields):
    """Numbers about a lake at one time, as ``lake.metrics`` has measured them.

    Attributes
    ----------
    root : str
        The lake.
    values : mapping
        By the name of a gauge for Prometheus: a number, or a mapping of tables, tasks or states to
        numbers. A gauge of which there is nothing to measure, such as the oldest transaction of a
        lake without any, is missing.

    Examples
    --------
    >>> found = lake.metrics()
    >>> found.values["lakevilla_tables"]
    2
    >>> print(found.prometheus().splitlines()[0])
    # HELP lakevilla_up 1 if the lake could be read, else 0.
    """

    root: str
    values: Mapping[str, float | Mapping[str, float]]

    @classmethod
    def unreadable(cls, root: str) -> LakeMetrics:
        """Return the metrics of a lake that could not be read: only that."""
        return cls(root, {"lakevilla_up": 0})

    def prometheus(self) -> str:
        """Return the metrics in Prometheus' text format, each with the label ``lake``."""
        return "".join(
            f"# HELP {name} {gauge.help}\n# TYPE {name} gauge\n{samples}"
            for name, gauge in GAUGES.items()
            if (samples := "".join(_samples(gauge, self)))
        )


def _samples(gauge: Gauge, lake: LakeMetrics) -> Iterator[str]:
    found = lake.values.get(gauge.prometheus)
    if found is None:
        return
    start = f'{gauge.prometheus}{{lake="{_escaped(lake.root)}"'
    if isinstance(found, Mapping):
        for name, value in found.items():
            yield f'{start},{gauge.label}="{_escaped(name)}"}} {value!r}\n'
    else:
        yield f"{start}}} {found!r}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

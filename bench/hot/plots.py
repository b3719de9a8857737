"""Hot rows drawn: what a number of clients get done, and what it takes of the processor."""

from __future__ import annotations

from matplotlib.figure import Figure

from bench.harness.drawing import grid, legend, lines
from bench.harness.results import Result, Series

_NOTHING = float("nan")


def over_clients(result: Result) -> Figure:
    """Updates a second and processor time an update over clients: a column a kind of work."""
    works = list(dict.fromkeys(str(one.params["work"]) for one in result.series))
    as_ = result.parameters["clients_as"]
    made, rows = grid(2, len(works), f"hot rows, clients as {as_}, profile {result.profile}")
    for column, work in enumerate(works):
        found = [one for one in result.series if one.params["work"] == work]
        clients = sorted({int(one.params["clients"]) for one in found})
        by_system: dict[str, dict[int, Series]] = {}
        for one in found:
            by_system.setdefault(one.system, {})[int(one.params["clients"])] = one
        rates, spent = (
            {
                name: [figure(of[count]) if count in of else _NOTHING for count in clients]
                for name, of in by_system.items()
            }
            for figure in (_rate, _processor)
        )
        lines(rows[0][column], clients, rates, "")
        lines(rows[1][column], clients, spent, "")
        rows[0][column].set_title(f"one {work}", fontsize=9)
        rows[1][column].set_xlabel("clients")
    rows[0][0].set_ylabel("updates a second")
    rows[1][0].set_ylabel("processor ms an update")
    legend(made, rows[0][0])
    return made


def _rate(one: Series) -> float:
    return one.throughput_per_s


def _processor(one: Series) -> float:
    return one.figures["processor_ms"] if one.n else _NOTHING

"""Requests of a transaction by verb, for each choice of features and the peers (Figure 14)."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import lakevilla as lv
from bench.harness.benchmark import Benchmark, NotInstalled, Run
from bench.harness.clients import Measured
from bench.harness.drawing import figure, legend, lines, stacked
from bench.harness.features import features
from bench.harness.parameters import (
    Parameter,
    Value,
    WrongParameter,
    check_known,
    chosen,
    listed,
    numbers,
)
from bench.harness.peers import PEERS, peer
from bench.harness.results import VERBS, Result, Series

ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "value": [1.5] * 100})
FEATURES = features("NONE", "R", "R|CT", "R|I", "R|CT|I")
#: What a transaction does with each of its tables.
KINDS = ("read", "append", "update")
#: Transactions before the first that is counted: tables are known, and the own last commit.
_WARM_UP = 1

Once = Callable[[], None]
Counts = Mapping[str, int]


def measure(run: Run) -> None:
    """Each system does each kind of transaction so often, alone and warm."""
    if run.places.proxy is None:
        raise WrongParameter("requests are counted by a server's proxy: --profile zero, or s3")
    kinds, widths = chosen("kinds", run["kinds"], KINDS), numbers(run["tables"])
    for name in listed(run["systems"]):
        run.advance(f"{name}: tables are made")
        try:
            system = _LakeVilla(run, name) if name in FEATURES else _Peer(run, name)
        except NotInstalled as error:
            run.note(f"{name} was left out: {error}")
            continue
        try:
            # Each kind has tables of its own, so that only appends make them grow.
            fitting = [width for width in widths if width == 1 or system.spans_tables]
            tables = {kind: [f"{kind}{i}" for i in range(max(fitting))] for kind in kinds}
            system.create([table for names in tables.values() for table in names])
            for kind in kinds:
                for width in fitting:
                    run.advance(f"{name}: {kind}, {width} tables")
                    once = system.transaction(kind, tables[kind][:width])
                    _count(run, name, kind, width, once, system.settle)
        finally:
            system.close()


def _count(run: Run, system: str, kind: str, width: int, once: Once, settle: Once) -> None:
    for _ in range(_WARM_UP):
        once()
        settle()
    measured = Measured()
    metadata: Counts = {}
    each: Counter[tuple[tuple[str, int], ...]] = Counter()
    times = run.number("transactions")
    run.places.reset()
    for _ in range(times):
        began = time.perf_counter()
        once()
        took = time.perf_counter() - began
        measured.record("transaction", took)
        measured.seconds += took
        settle()
        counted = run.places.count_metadata()
        each[tuple((verb, counted[verb] - metadata.get(verb, 0)) for verb in VERBS)] += 1
        metadata = counted
    params: dict[str, Value] = {"kind": kind, "tables": width, "transactions": times}
    run.add(system, params, measured, requests=run.places.count(), metadata=metadata)
    expected = promised(system, kind, width)
    if expected is not None:
        # Checkpoints and pages of HEAD come now and then: the commonest has none.
        ((commonest, _),) = each.most_common(1)
        well = _said(dict(commonest)) == _said(expected)
        run.check("LakeVilla's requests for metadata are those that it promises", well)
        if not well:
            what = f"{system}, {kind}, {width} tables"
            run.note(f"{what}: {_said(dict(commonest))}, promised {_said(expected)}")


def promised(system: str, kind: str, tables: int) -> Counts | None:
    """Requests for metadata of a warm transaction, as ``test_request_counts`` has them."""
    if system not in FEATURES:
        return None
    wanted, k = FEATURES[system], tables
    if not wanted & (lv.Feature.I | lv.Feature.CT):
        # The next entry is asked for, and created.
        return {"read": {"get": 1}, "append": {"put": 1}, "update": {"get": 1, "put": 1}}[kind]
    if kind == "read":
        return {"get": k + 1} if lv.Feature.CT not in wanted else None
    # HEAD, and a probe for each table that is read and each that is written; an entry for each
    # table, the commit object and HEAD.
    found = Counter(get=k + 1 if kind == "append" else 2 * k + 1, put=k + 2)
    if lv.Feature.CT in wanted and kind == "append":
        # A look at each queue, where nobody is met.
        found += Counter(list=k)
    elif lv.Feature.CT in wanted:
        # A place in each queue, its transaction's record, and HEAD with each place.
        found += Counter(put=k + 1, list=2 * k, delete=k + 1, get=k - 1)
    return found


def _said(counts: Counts) -> str:
    return " ".join(f"{counts[verb]} {verb}" for verb in VERBS if counts.get(verb))


class _LakeVilla:
    """A lake whose transactions have the features of that name."""

    def __init__(self, run: Run, name: str) -> None:
        self.features = FEATURES[name]
        # A transaction by a log entry is of one table.
        self.spans_tables = bool(self.features & (lv.Feature.I | lv.Feature.CT))
        self.lake = lv.connect(run.places.root(name), storage_options=run.places.options)

    def create(self, tables: Sequence[str]) -> None:
        with self.lake.transaction() as txn:
            for table in tables:
                txn.create_table(table, ROWS)

    def transaction(self, kind: str, tables: Sequence[str]) -> Once:
        def once() -> None:
            with self.lake.transaction(self.features) as txn:
                for table in tables:
                    if kind == "read":
                        txn.read(table)
                    elif kind == "append":
                        txn.append(table, ROWS)
                    else:
                        txn.update(table, {"value": "value + 1"}, where="id = 7")

        return once

    def settle(self) -> None:
        """Wait for what commits have left to the background."""
        self.lake.close()

    def close(self) -> None:
        self.lake.close()


class _Peer:
    """Another system: its transactions are of one statement, on one table."""

    spans_tables = False

    def __init__(self, run: Run, name: str) -> None:
        check_known("systems", name, [*FEATURES, *PEERS])
        self.peer = peer(name, run.places)

    def create(self, tables: Sequence[str]) -> None:
        self.peer.create(tables, ROWS)

    def transaction(self, kind: str, tables: Sequence[str]) -> Once:
        def once() -> None:
            if kind == "append":
                self.peer.append(tables, ROWS)
                return
            for table in tables:
                if kind == "read":
                    self.peer.read(table)
                else:
                    self.peer.update(table, {"value": "value + 1"}, "id = 7")

        return once

    def settle(self) -> None:
        """Peers leave nothing to the background."""

    def close(self) -> None:
        self.peer.close()


def _each(one: Series, counts: Counts, verb: str) -> float:
    return counts.get(verb, 0) / int(one.params["transactions"])


def by_verb(result: Result) -> Figure:
    """Requests for metadata of one transaction on one table, verbs stacked, by what it does."""
    least = min(int(one.params["tables"]) for one in result.series)
    here = [one for one in result.series if one.params["tables"] == least]
    kinds = list(dict.fromkeys(str(one.params["kind"]) for one in here))
    on = "one table" if least == 1 else f"{least} tables"
    made, axes = figure(len(kinds), f"requests for metadata of a transaction on {on}")
    for panel, kind in zip(axes, kinds, strict=True):
        of_kind = [one for one in here if one.params["kind"] == kind]
        parts = {verb: [_each(one, one.metadata, verb) for one in of_kind] for verb in VERBS}
        stacked(panel, [one.system for one in of_kind], parts)
        panel.set_title(kind, fontsize=9)
        panel.margins(y=0.12)  # room for the sums
    axes[0].set_ylabel("requests")
    legend(made, axes[0])
    return made


def by_tables(result: Result) -> Figure:
    """Requests for metadata by the number of tables, of the systems that have such transactions."""
    many = [one for one in result.series if int(one.params["tables"]) > 1]
    systems = list(dict.fromkeys(one.system for one in many))
    here = [one for one in result.series if one.system in systems]
    kinds = list(dict.fromkeys(str(one.params["kind"]) for one in here))
    widths = sorted({int(one.params["tables"]) for one in here})
    found = {
        (one.system, one.params["kind"], one.params["tables"]): sum(
            _each(one, one.metadata, verb) for verb in VERBS
        )
        for one in here
    }
    made, axes = figure(max(len(kinds), 1), "requests for metadata of a transaction on k tables")
    for panel, kind in zip(axes, kinds, strict=False):
        heights = {
            system: [found.get((system, kind, width), float("nan")) for width in widths]
            for system in systems
        }
        lines(panel, widths, heights, "requests" if panel is axes[0] else "")
        # On a logarithmic axis nobody reads whether it is 5 or 6. Both axes are linear, or what
        # grows by as much for each table would bend.
        panel.set_xscale("linear")
        panel.set_yscale("linear")
        panel.set_xticks(widths, [str(width) for width in widths])
        panel.margins(x=0.08, y=0.12)  # room for the numbers, also below the least
        _number(panel, widths, heights)
        panel.set_title(kind, fontsize=9)
        panel.set_xlabel("tables")
    if here:
        legend(made, axes[0])
    return made


def _number(panel: Axes, at: Sequence[int], heights: Mapping[str, Sequence[float]]) -> None:
    """The least and the most at each place in figures: those between them would overlap."""
    for place, values in zip(at, zip(*heights.values(), strict=True), strict=True):
        known = {value for value in values if not math.isnan(value)}  # fewer, if it was cut off
        if known:
            _beside(panel, place, max(known), 4, "bottom")
        if len(known) > 1:
            _beside(panel, place, min(known), -5, "top")


def _beside(panel: Axes, place: int, value: float, points: int, edge: str) -> None:
    panel.annotate(
        f"{value:.3g}",
        (place, value),
        (0, points),
        textcoords="offset points",
        ha="center",
        va=edge,
        size=7,
    )


_ALL = "Spark+Delta,Spark+Iceberg,deltalake,pyiceberg,NONE,R,R|CT,R|I,R|CT|I"
#: Spark alone takes half a minute to start.
_SOME = "Spark+Delta,Spark+Iceberg,deltalake,R,R|CT,R|I"

BENCHMARK = Benchmark(
    name="requests",
    summary="requests of the store by verb, of one transaction, by its features and beside peers",
    claim=(
        "Figure 14: beside Spark's Delta and Iceberg, markers add the most writes, CT adds 1 "
        "write and 5 reads of metadata a table, and I the least of all"
    ),
    deviations=(
        "the paper counts over its other experiments, here each kind of transaction is made alone "
        "and warm; the catalogs of pyiceberg and Spark+Iceberg are local files, whose requests "
        "are not the store's; markers here are of CT alone, so R adds none"
    ),
    parameters=(
        Parameter("systems", _ALL, _SOME, f"of {', '.join([*FEATURES, *PEERS])}"),
        Parameter("kinds", "read,append,update", "read,append", "of transactions"),
        Parameter("tables", "1,2,4,8", "1,2", "in a transaction, where a system has such ones"),
        Parameter("transactions", 20, 2, "of each kind", least=1),
    ),
    run=measure,
    plots={"by-verb": by_verb, "by-tables": by_tables},
    profile="zero",
    transactions=True,
)

"""LST-Bench W0 and W3 run through LakeVilla, phase by phase."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

import lakevilla as lv
from bench.harness.answers import same_rows
from bench.harness.attempts import run_counted
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Counts, Measured, Work, closed_loop
from bench.harness.parameters import Parameter, chosen
from bench.harness.tpc import KINDS, Tpc
from bench.lst_bench import plots
from bench.lst_bench.model import Model, Print, print_of, print_sql
from bench.lst_bench.workload import (
    CHANNELS,
    FACTS,
    INVENTORY,
    INVENTORY_DATE,
    QUERIES,
    WORKLOADS,
    Channel,
    Phase,
    Refresh,
    queries,
    refresh,
)

#: As the paper chooses them, as far as there is a choice: ``optimize`` takes none.
USER = lv.Feature.R | lv.Feature.I
MAINTENANCE = lv.Feature.R | lv.Feature.CT


@dataclass
class Session:
    """One session of a phase: what it is of, what it does, and how long its steps took."""

    kind: str
    steps: Work
    seconds: float = 0.0
    by_step: dict[str, list[float]] = field(default_factory=dict)

    def work(self, counts: Counts) -> Iterator[str]:
        """As ``steps``, all under one name."""
        began = time.perf_counter()
        steps = self.steps(counts)
        step = next(steps, None)
        while step is not None:
            yield self.kind
            started = time.perf_counter()
            following = next(steps, None)  # carries the step out
            ended = time.perf_counter()
            self.by_step.setdefault(step, []).append((ended - started) * 1000)
            self.seconds = ended - began
            step = following


def measure(run: Run) -> None:
    """Each workload from the generator's rows on, phase by phase."""
    workloads = chosen("workloads", run["workloads"], WORKLOADS)
    run.advance("the rows are generated")
    made = Tpc("tpcds", float(run["scale"]), run.places.file("tpcds.db"))
    try:
        texts = {number: made.query(number) for number in QUERIES}
        answers = {number: made.answer(sql) for number, sql in texts.items()}
        for repeat in range(run.number("repeats")):
            for workload in workloads:
                model = Model(made)
                try:
                    _through(run, made, model, workload, repeat, texts, answers)
                finally:
                    model.close()
    finally:
        made.close()


def _through(
    run: Run,
    made: Tpc,
    model: Model,
    workload: str,
    repeat: int,
    texts: Mapping[int, str],
    answers: Mapping[int, pa.Table],
) -> None:
    root = run.places.root(workload)
    with lv.connect(root, storage_options=run.places.options) as lake:
        with lake.transaction() as txn:
            for table in made.tables:
                run.advance(f"{workload}: {table} is made")
                txn.create_table(table, made.rows(table))
        _check_answers(run, root, texts, answers)
        before = _prints(lake)
        refreshes = 0
        for number, written in enumerate(WORKLOADS[workload][: run.number("phases")], 1):
            phase = replace(written, refreshes=min(written.refreshes, run.number("refreshes")))
            seed = f"{run.seed}-{repeat}-{workload}-{number}"
            chosen = [
                refresh(
                    refreshes + i + 1,
                    run.number("ranges"),
                    run.number("days"),
                    f"{run.seed}-{repeat}",
                )
                for i in range(phase.refreshes)
            ]
            refreshes += len(chosen)
            inserted = [model.apply(one) for one in chosen]
            sessions = [
                Session("SU", partial(_user, lake, texts, run.number("queries"), f"{seed}-{i}"))
                for i in range(phase.users)
            ]
            if chosen:
                todo = list(zip(chosen, inserted, strict=True))
                sessions.append(Session("DM", partial(_maintain, lake, todo)))
            if phase.optimizes:
                sessions.append(Session("O", partial(_optimize, lake, made.tables)))
            run.advance(f"{workload}, phase {number}: {phase.name}, repeat {repeat + 1}")
            died = _phase(run, {"workload": workload, "phase": f"{number}: {phase.name}"}, sessions)
            if died:
                return  # what the tables must hold is not known any more
            before = _checked(run, lake, model, phase, before)
    run.places.discard(root)


def _check_answers(
    run: Run, root: str, texts: Mapping[int, str], answers: Mapping[int, pa.Table]
) -> None:
    """Hold what a single user is answered against the generator's own answers.

    Now, and not in a session: one beside data maintenance may be answered from before or after
    any of its transactions. On a lake of its own, so that the first session finds nothing warm.
    """
    with lv.connect(root, storage_options=run.places.options) as lake:
        for number, sql in texts.items():
            run.advance(f"the answer to Q{number} is checked")
            found = lake.run(partial(lv.Transaction.sql, query=sql), features=USER)
            run.check(
                "before the first refresh, each query answers as DuckDB does from the "
                "generator's rows",
                same_rows(found, answers[number]),
            )


def _phase(run: Run, params: Mapping[str, str], sessions: Sequence[Session]) -> bool:
    """Run sessions at the same time; whether one has died."""
    run.places.reset()
    measured = closed_loop([one.work for one in sessions])
    requests = run.places.count()
    for kind in dict.fromkeys(one.kind for one in sessions):
        of_kind = Measured(
            {name: one for name, one in measured.histograms.items() if name == kind},
            max(one.seconds for one in sessions if one.kind == kind),
        )
        if kind == sessions[0].kind:  # requests and losses of a phase are told once
            of_kind.counts, of_kind.deaths = measured.counts, measured.deaths
        run.add(
            kind,
            params,
            of_kind,
            requests=requests if kind == sessions[0].kind else {},
            phases_ms=_by_script(sessions) if kind == "DM" else {},
        )
    return bool(measured.deaths)


def _by_script(sessions: Sequence[Session]) -> dict[str, float]:
    """How long each script of data maintenance takes, on average."""
    (one,) = (session for session in sessions if session.kind == "DM")
    return {script: statistics.mean(times) for script, times in one.by_step.items()}


def _checked(
    run: Run, lake: lv.Lake, model: Model, phase: Phase, before: dict[str, Print]
) -> dict[str, Print]:
    """Hold the tables against what the phase must have left."""
    if not phase.refreshes and not phase.optimizes:
        return before
    after = _prints(lake)
    if phase.refreshes:
        run.check(
            "data maintenance leaves the rows that DuckDB has after the same deletes and inserts",
            after == model.prints(),
        )
    else:
        run.check("OPTIMIZE changes no row", after == before)
    return after


def _prints(lake: lv.Lake) -> dict[str, Print]:
    with lake.snapshot() as state:
        return {table: print_of(state.sql(print_sql(table))) for table in FACTS}


def _user(
    lake: lv.Lake, texts: Mapping[int, str], count: int, seed: str, counts: Counts
) -> Iterator[str]:
    for number in queries(count, seed):
        yield "query"
        run_counted(lake, counts, partial(lv.Transaction.sql, query=texts[number]), features=USER)


def _maintain(
    lake: lv.Lake, todo: Sequence[tuple[Refresh, Mapping[str, pa.Table]]], counts: Counts
) -> Iterator[str]:
    """Refreshes one after the other: each script is one transaction."""
    for one, inserted in todo:
        for channel in CHANNELS:
            yield f"DF_{channel.script}"
            run_counted(
                lake,
                counts,
                partial(_delete_orders, channel=channel, refresh=one),
                features=MAINTENANCE,
            )
        yield "DF_I"
        run_counted(lake, counts, partial(_delete_inventory, refresh=one), features=MAINTENANCE)
        for table in FACTS:
            yield f"LF {table}"
            appends = partial(lv.Transaction.append, table=table, data=inserted[table])
            run_counted(lake, counts, appends, features=MAINTENANCE)


def _delete_orders(txn: lv.Transaction, channel: Channel, refresh: Refresh) -> None:
    """As DF_CS, DF_SS and DF_WS: the returns of some days' orders, then the orders."""
    for first, last in refresh.ranges:
        txn.sql(
            f"MERGE INTO {channel.returns} USING (SELECT DISTINCT {channel.order} AS sold "
            f"FROM {channel.sales}, date_dim WHERE {channel.date} = d_date_sk "
            f"AND d_date_sk BETWEEN {first} AND {last}) AS source "
            f"ON {channel.returned} = sold WHEN MATCHED THEN DELETE"
        )
        txn.delete(channel.sales, f"{channel.date} BETWEEN {first} AND {last}")


def _delete_inventory(txn: lv.Transaction, refresh: Refresh) -> None:
    for first, last in refresh.ranges:
        txn.delete(INVENTORY, f"{INVENTORY_DATE} BETWEEN {first} AND {last}")


def _optimize(lake: lv.Lake, tables: Sequence[str], counts: Counts) -> Iterator[str]:
    for table in tables:
        yield table
        lake.table(table).optimize()


BENCHMARK = Benchmark(
    name="lst_bench",
    summary="LST-Bench W0 and W3: queries, data maintenance and OPTIMIZE over hours in short",
    claim=(
        "Figure 12, at scale factor 100: concurrent queries raise the throughput of W0's phases, "
        "updates lower it; OPTIMIZE helps queries after many updates, but not against more data"
    ),
    deviations=(
        "the generator makes no refresh rows offline: what a refresh deletes is inserted again "
        "with other keys, so the tables do not grow; DuckDB runs the whole queries, the paper's "
        "prototype loads files; DM has R|CT and SU R|I as in the paper, OPTIMIZE takes no "
        "features; the queries are the paper's 13 of 99, drawn by the seed for each session"
    ),
    parameters=(
        Parameter("scale", 1.0, 0.01, "the scale factor", least=0.01),
        Parameter("workloads", "W0,W3", "W0,W3", f"of {', '.join(WORKLOADS)}"),
        Parameter("queries", 50, 2, "of each single user in a phase", least=1),
        Parameter("refreshes", 6, 1, "of data maintenance in a phase, at most", least=1),
        Parameter("ranges", 3, 1, "of dates that a refresh deletes from each table", least=1),
        Parameter("days", 7, 7, "in each of these ranges", least=1),
        Parameter("phases", 6, 3, "of each workload, at most", least=1),
        Parameter("repeats", 5, 1, "of each workload", least=1),
    ),
    run=measure,
    # What is deleted or rewritten stays in the store until it is vacuumed.
    needs=lambda given: KINDS["tpcds"].needs(float(given["scale"]), copies=3),
    plots={"throughput": plots.throughput, "latency": plots.latency},
)

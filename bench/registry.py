"""The benchmarks, by name; each is loaded when it is asked for."""

from __future__ import annotations

import difflib
from importlib import import_module

from bench.harness.benchmark import Benchmark
from bench.harness.parameters import WrongParameter

#: Where each lies.
MODULES = {
    "ycsb_lh": "bench.ycsb_lh.driver",
    "ycsb_phases": "bench.ycsb_lh.phases",
    "banking": "bench.banking",
    "tables_per_txn": "bench.tables_per_txn",
    "freshness": "bench.freshness",
    "contention": "bench.contention",
    "hot": "bench.hot.driver",
    "scale": "bench.scale.driver",
    "requests": "bench.requests",
    "hermitage": "bench.hermitage.driver",
    "smoke": "bench.commits.smoke",
    "writers": "bench.commits.writers",
    "crowd": "bench.commits.crowd",
    "limited": "bench.commits.limited",
    "cpu_phases": "bench.commits.cpu_phases",
    "queues": "bench.commits.queues",
    "visible": "bench.commits.visible",
    "window": "bench.commits.window",
    "iceberg": "bench.commits.iceberg",
    "guests": "bench.commits.guests",
    "many_tables": "bench.size.many_tables",
    "month": "bench.size.month",
    "many_files": "bench.size.many_files",
    "memory_of_many": "bench.size.memory_of_many",
    "growth": "bench.size.growth",
    "steady": "bench.size.steady",
    "rewrite": "bench.size.rewrite",
    "refresh": "bench.size.refresh",
    "shown": "bench.size.shown",
    "pages": "bench.size.pages",
    "spark": "bench.engines.spark",
    "page_checksums": "bench.engines.page_checksums",
    "file_hashes": "bench.engines.file_hashes",
    "deleted_rows": "bench.engines.deleted_rows",
    "marked_rows": "bench.engines.marked_rows",
    "row_ids": "bench.engines.row_ids",
    "upsert": "bench.engines.upsert",
    "cab_lh": "bench.cab_lh.driver",
    "tpcds": "bench.tpcds.driver",
    "tpcds_warm": "bench.tpcds.warm",
    "lst_bench": "bench.lst_bench.driver",
    "treecat_mix": "bench.treecat_mix",
    "tpcc": "bench.tpcc.driver",
}


def benchmark(name: str) -> Benchmark:
    """One benchmark."""
    if name not in MODULES:
        near = difflib.get_close_matches(name, MODULES, 1)
        hint = f", did you mean {near[0]}?" if near else "."
        raise WrongParameter(f"no benchmark {name!r}{hint} There are: {', '.join(MODULES)}")
    found: Benchmark = import_module(MODULES[name]).BENCHMARK
    return found

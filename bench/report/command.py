"""The command that measures a result again."""

from __future__ import annotations

from bench.harness.benchmark import Benchmark
from bench.harness.results import Result
from bench.harness.store.places import NAMES


def command(benchmark: Benchmark, result: Result) -> str:
    """What to type: the parameters that are not the defaults of such a run are named."""
    usual = {one.name: one.quick if result.quick else one.whole for one in benchmark.parameters}
    parts = [f"lakevilla bench run {result.benchmark}"]
    if result.quick:
        parts.append("--quick")
    if result.seed != 1:
        parts.append(f"--seed {result.seed}")
    if result.profile not in NAMES:
        parts.append(f"--store {result.profile}")
    elif result.profile != benchmark.profile:
        parts.append(f"--profile {result.profile}")
    for key, value in result.parameters.items():
        if usual.get(key) != value:
            text = f"{key}={value}"
            parts.append(f"-p '{text}'" if set(text) & set("| ;'*") else f"-p {text}")
    return " ".join(parts)

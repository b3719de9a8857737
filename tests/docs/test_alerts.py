"""The sample alerts use metrics and labels that ``lakevilla metrics`` has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from lakevilla.gauges import GAUGES
from lakevilla.maintenance.upkeep.tasks import TASKS

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((GUIDES / "lakevilla-alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]


def selectors(expression: Any) -> Iterator[Any]:
    """Yield the selectors of metrics in an expression of PromQL."""
    match expression:
        case promql.VectorSelector():
            yield expression
        case promql.BinaryExpr():
            yield from selectors(expression.lhs)
            yield from selectors(expression.rhs)
        case promql.ParenExpr() | promql.AggregateExpr():
            yield from selectors(expression.expr)
        case promql.Call():
            for argument in expression.args:
                yield from selectors(argument)
        case promql.NumberLiteral():
            return
        case _:
            raise AssertionError(f"the test does not know {type(expression).__name__}")


def test_alerts_are_on_each_kind_of_trouble() -> None:
    used = {one.name for rule in RULES for one in selectors(promql.parse(rule["expr"]))}
    assert used >= {
        "lakevilla_up",
        "lakevilla_oldest_pending_commit_timestamp_seconds",
        "lakevilla_oldest_transaction_timestamp_seconds",
        "lakevilla_queue_depth",
        "lakevilla_table_small_files",
        "lakevilla_upkeep_ok",
        "lakevilla_proposals",
    }


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_names_metrics_labels_and_tasks_that_exist(rule: dict[str, Any]) -> None:
    found = list(selectors(promql.parse(rule["expr"])))
    assert found
    for one in found:
        gauge = GAUGES[one.name]
        matched = {matcher.name: matcher.value for matcher in one.matchers.matchers}
        assert matched.keys() <= {"lake", gauge.label}
        assert matched.get("task", "keep") in TASKS
    labels = {label for one in found for label in ("lake", GAUGES[one.name].label)}
    texts = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels
    assert rule["annotations"].keys() == {"summary", "action"}


def test_the_guide_lists_each_metric_by_both_of_its_names() -> None:
    rows = re.findall(
        r"(?m)^\| `(lakevilla_\w+)` \| `(lakevilla[.\w]+)` \| ([^|]*) \|",
        (GUIDES / "operators.md").read_text(),
    )
    assert {prometheus: (other, label) for prometheus, other, label in rows} == {
        name: (gauge.opentelemetry, f"`{gauge.label}`" if gauge.label else "")
        for name, gauge in GAUGES.items()
    }
    assert len(rows) == len(GAUGES)

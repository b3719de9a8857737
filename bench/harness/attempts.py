"""Transactions that run again until they commit, with their aborts counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lakevilla as lv
from bench.harness.clients import Counts


def run_counted(
    lake: lv.Lake[Any],
    counts: Counts,
    body: Callable[[lv.Transaction[Any]], object],
    **options: Any,
) -> None:
    """As ``lake.run``; each attempt but the last is an abort of this client."""
    attempts = 0

    def once(txn: lv.Transaction[Any]) -> None:
        nonlocal attempts
        attempts += 1
        body(txn)

    lake.run(once, **options)
    counts.aborts += attempts - 1

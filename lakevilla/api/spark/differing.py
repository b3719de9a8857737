"""Rows in which two states of a table differ, as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakevilla.api.spark.client import SparkClient
from lakevilla.engines.base import TableInput
from lakevilla.engines.spark.upkeep.changes import ChangeStep, Comparing
from lakevilla.formats.files import files_from_structs
from lakevilla.lake.operations.changed_rows import ADDED, REMOVED
from lakevilla.lake.operations.state_difference import TableDifference
from lakevilla.lake.operations.state_rows import OWN, comparison, sources_between

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def differing(client: SparkClient, table: TableDifference, keys: Sequence[str] | None) -> DataFrame:
    """What ``state_rows.rows_between`` tells, read and compared by tasks when it is used."""
    sources = client.run(sources_between(table, keys))
    inputs = tuple(
        (TableInput(one.layout, files_from_structs(one.files)), one.kind) for one in sources
    )
    # Two states are compared like what one commit has changed; neither version nor time is shown.
    steps = [ChangeStep(0, 0, inputs)] if inputs else []
    comparing = Comparing(comparison(keys), ADDED, REMOVED, tuple(keys or ()))
    layout = table.snapshot.layout
    return client.engine.changes(layout, steps, None, None, comparing, OWN)

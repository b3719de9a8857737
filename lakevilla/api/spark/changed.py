"""Rows that commits changed in a table, as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakevilla.api.spark.client import SparkClient
from lakevilla.engines.base import TableInput
from lakevilla.engines.spark.upkeep.changes import ChangeStep, Comparing
from lakevilla.formats.base import Change
from lakevilla.formats.files import files_from_structs
from lakevilla.global_log.head import CommitSummary
from lakevilla.lake.operations.changed_rows import (
    ADDED,
    CHANGE_COLUMNS,
    DIFFERENCE,
    REMOVED,
    Reading,
    sources_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def changed(
    client: SparkClient, reading: Reading, changes: Iterable[tuple[CommitSummary, Change]]
) -> DataFrame:
    """The rows of some changes, read and compared by tasks when the DataFrame is used."""
    steps = [
        ChangeStep(
            commit.sequence,
            commit.timestamp_ms,
            tuple(
                (TableInput(one.layout, files_from_structs(one.files)), one.kind)
                for one in sources_of(reading.layout, change)
            ),
        )
        for commit, change in changes
    ]
    comparing = Comparing(DIFFERENCE, ADDED, REMOVED)
    return client.engine.changes(
        reading.layout, steps, reading.columns, reading.where, comparing, CHANGE_COLUMNS
    )

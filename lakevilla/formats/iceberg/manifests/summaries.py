"""How a manifest list names a manifest: what its partitions lie between, too.

pyiceberg makes no bound of a decimal that has a digit more than its type. The spec's truncation
makes such values of the lowest ones of a type, and a writer that does not refuse them has them
in its manifests. A manifest that keeps its files has to be told of all the same: the bytes of a
bound are as many as the value takes (spec, "Binary single-value serialization"), and no reader
counts its digits.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.manifest import (
    ManifestFile,
    ManifestWriter,
    PartitionFieldStats,
    PartitionFieldSummary,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType
from pyiceberg.utils.decimal import decimal_to_bytes

_PARTITIONS = 13


def listed_file(writer: ManifestWriter, spec: PartitionSpec, schema: Schema) -> ManifestFile:
    """A manifest that is written, as a list names it."""
    partitions, writer._partitions = writer._partitions, []
    made = writer.to_manifest_file()
    made._data[_PARTITIONS] = [
        _summary(field.field_type, [one[place] for one in partitions])
        for place, field in enumerate(spec.partition_type(schema).fields)
    ]
    return made


def _summary(kind: Any, values: list[Any]) -> PartitionFieldSummary:
    stats = PartitionFieldStats(kind)
    for value in values:
        stats.update(value)
    if not isinstance(kind, DecimalType) or stats._min is None or stats._max is None:
        return stats.to_summary()
    low, high = decimal_to_bytes(stats._min), decimal_to_bytes(stats._max)
    return PartitionFieldSummary(stats._contains_null, stats._contains_nan, low, high)

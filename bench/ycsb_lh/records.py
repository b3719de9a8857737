"""Records of YCSB-LH as rows of Arrow."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from bench.ycsb_lh.generators import key_of
from bench.ycsb_lh.workload import FIELDS, Operation, modified, record

KEY = "ycsb_key"
NAMES = [f"field{number}" for number in range(FIELDS)]
SCHEMA = pa.schema([(KEY, pa.string()), *((name, pa.string()) for name in NAMES)])


def rows(first: int, count: int, random: Random) -> pa.Table:
    """Records by number."""
    found = [[key_of(first + number), *record(random)] for number in range(count)]
    return pa.table(list(map(list, zip(*found, strict=True))), schema=SCHEMA)


def modified_in(found: pa.Table, operation: Operation) -> str:
    """What a read-modify-write makes of the record that it has read."""
    before = found[NAMES[operation.field]].to_pylist()
    return modified(before[0] if before else "", operation.value)

"""Every planted bug by its name: each file of this folder adds its own when it is imported."""

from lakevilla_testing.planted import (
    applied,
    branches,
    clones,
    commit_again,
    feed,
    iceberg,
    inbox,
    kept,
    leaves,
    marks,
    older_head,
    protocol,
    queues,
    refs,
    reshaping,
    row_ids,
    sizes,
)
from lakevilla_testing.planted.bugs import PLANTED

__all__ = [
    "PLANTED",
    "branches",
    "clones",
    "applied",
    "commit_again",
    "feed",
    "older_head",
    "iceberg",
    "inbox",
    "kept",
    "leaves",
    "marks",
    "protocol",
    "queues",
    "refs",
    "reshaping",
    "row_ids",
    "sizes",
]

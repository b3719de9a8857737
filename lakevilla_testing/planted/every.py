"""Every planted bug by its name: each file of this folder adds its own when it is imported."""

from lakevilla_testing.planted import (
    applied,
    branches,
    clones,
    combined,
    commit_again,
    feed,
    iceberg,
    inbox,
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
    "combined",
    "applied",
    "commit_again",
    "feed",
    "older_head",
    "iceberg",
    "inbox",
    "leaves",
    "marks",
    "protocol",
    "queues",
    "refs",
    "reshaping",
    "row_ids",
    "sizes",
]

"""Every planted bug by its name: each file of this folder adds its own when it is imported."""

import os
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from typing import Any

from lakevilla_testing.planted import (
    applied,
    backups,
    branches,
    chained,
    clones,
    combined,
    commit_again,
    feed,
    given,
    iceberg,
    inbox,
    kept,
    leaves,
    limits,
    marks,
    older_head,
    parsers,
    protocol,
    queues,
    refs,
    reshaping,
    row_ids,
    shown,
    sizes,
    slips,
)
from lakevilla_testing.planted.bugs import PLANTED, VARIABLE

__all__ = [
    "PLANTED",
    "backups",
    "branches",
    "clones",
    "chained",
    "combined",
    "applied",
    "commit_again",
    "feed",
    "given",
    "older_head",
    "parsers",
    "iceberg",
    "inbox",
    "kept",
    "leaves",
    "limits",
    "marks",
    "protocol",
    "queues",
    "refs",
    "reshaping",
    "row_ids",
    "shown",
    "sizes",
    "slips",
]


def planted_by_environment() -> AbstractContextManager[Any]:
    """Return a context with the planted bug that the environment names, if it names one.

    Raises
    ------
    KeyError
        No bug has that name; the error has the nearest names.
    """
    name = os.environ.get(VARIABLE, "")
    if not name:
        return nullcontext()
    if name not in PLANTED:
        near = get_close_matches(name, PLANTED) or ["`python -m lakevilla_testing planted`"]
        raise KeyError(f"{VARIABLE}: there is no planted bug {name!r}: see {', '.join(near)}")
    planted: AbstractContextManager[Any] = PLANTED[name].plant()
    return planted

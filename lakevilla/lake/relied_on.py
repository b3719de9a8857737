"""Which objects decide something by what is read in them."""

from __future__ import annotations

import re

from lakevilla.global_log.head_log import is_head

_LOG_ENTRY = re.compile(r"/_delta_log/\d{20}\.json$")


def is_relied_on(key: str) -> bool:
    """Whether a reader of ``key`` acts on what it finds there: HEAD, and each log entry.

    On a store without conditional writes (``connect(conditional_writes="check")``) these are
    read until they have settled. All else is safe to read at once: data files, commit
    objects and pages have one writer; markers and records are hints; what binds an
    idempotency key is followed to HEAD.
    """
    return is_head(key) or _LOG_ENTRY.search(key) is not None

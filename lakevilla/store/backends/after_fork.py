"""Whether this process was forked from one that had used the backend, whose threads it lacks.

A request would wait for them for ever.
"""

from __future__ import annotations

import os

_used = False
_forked_after_use = False


class ForkedError(OSError):
    """The backend can't be used in this process."""

    reason = (
        "this process was forked after its parent had used the store; start processes with "
        'multiprocessing.get_context("spawn"), or connect in the child only'
    )


def note_use() -> ForkedError | None:
    """To be asked before each request: why there can be none."""
    global _used
    if _forked_after_use:
        return ForkedError()
    _used = True
    return None


def _after_fork() -> None:
    global _forked_after_use
    _forked_after_use = _used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

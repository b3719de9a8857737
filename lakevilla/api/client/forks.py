"""What a forked child must begin anew: it has its parent's objects, and none of its threads."""

from __future__ import annotations

import os
import weakref

from lakevilla.lake.lanes import Lanes

_ALL: weakref.WeakSet[Lanes] = weakref.WeakSet()


def empty_after_fork(lanes: Lanes) -> None:
    """Empty the lanes in a forked child: whoever leads there, or waits, stays behind."""
    _ALL.add(lanes)


def _empty_all() -> None:
    for lanes in list(_ALL):
        lanes.empty()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_empty_all)

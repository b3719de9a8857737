"""Whose turn it is to publish: the owner of the first commit that waits for a table's log.

Anybody may publish anything at any time, so this is a courtesy, which no rule of safety rests on.
Of ten processes with commits pending on one table all could create its next entry; nine would be
refused, and read what came. So the owner of the first goes at once, and the others look whether the
entry has come. It may have stopped: they look a few times, and then publish themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lakevilla.formats.base import FormatName
from lakevilla.global_log.head import Head, PendingRef
from lakevilla.lake.context import Context
from lakevilla.lake.table_log import next_entry
from lakevilla.lake.tail import Tail
from lakevilla.store.effects import Program, sleep

#: How often one looks for the entry of another, and after which pause. A Delta entry takes about
#: 60 ms on S3, a version of an Iceberg table three times that.
LOOKS = 4
LOOK_SECONDS: dict[FormatName, float] = {"delta": 0.08, "iceberg": 0.2}
#: The first comes sooner: the owner has begun when HEAD was replaced, which is heard of later.
_FIRST_LOOK = 0.5
#: How much older than the newest commit of HEAD one may be whose owner is still expected.
_EXPECTED_MS = 1000


@dataclass(slots=True)
class Turn:
    """How one who wishes a table to be published lets its owners go first.

    ``is_ours`` tells of a transaction's id whether its commit is to be published here, at once.
    """

    is_ours: Callable[[str], bool]
    _looks: int = field(default=0, init=False)
    _goes_on: bool = field(default=False, init=False)

    def is_anothers(self, head: Head, waiting: Sequence[PendingRef]) -> bool:
        """Whether another is expected to publish the first of those that are waiting."""
        first = waiting[0]
        if self._looks >= LOOKS or self.is_ours(first.txn):
            return False
        newest = head.commits[-1].timestamp_ms
        made = (one.timestamp_ms for one in head.commits if one.sequence == first.sequence)
        return newest - next(made, 0) <= _EXPECTED_MS

    @property
    def has_waited(self) -> bool:
        """Whether it has let others go first."""
        return self._looks > 0

    def look(self, context: Context, tail: Tail) -> Program[Tail]:
        """See what has come into the log: after a pause, unless there was something just now."""
        if not self._goes_on:
            self._looks += 1
            pause = LOOK_SECONDS[tail.snapshot.format] * (_FIRST_LOOK if self._looks == 1 else 1)
            yield from sleep(pause * (0.8 + 0.4 * context.ids.jitter()))
        newer = yield from next_entry(context, tail)
        self._goes_on = newer.tip > tail.tip
        return newer

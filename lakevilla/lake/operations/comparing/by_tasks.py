"""What ``by_rows`` does, done by the tasks of an engine: the driver holds no rows."""

from __future__ import annotations

from lakevilla.engines.base import FileNamer
from lakevilla.engines.meeting import MeetingEngine
from lakevilla.formats.base import TableSnapshot
from lakevilla.lake.context import Context
from lakevilla.lake.operations.comparing.aside import Aside, with_aside
from lakevilla.lake.operations.comparing.bags_met import as_bags
from lakevilla.lake.operations.comparing.computed import Beneath
from lakevilla.lake.operations.comparing.keys_met import by_keys
from lakevilla.lake.operations.comparing.rows import ByRows
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Transplant


def by_tasks(
    context: Context,
    engine: MeetingEngine,
    operation: Transplant,
    snapshot: TableSnapshot,
    name: FileNamer,
    beneath: Beneath | None,
) -> Program[ByRows]:
    """Apply the rows that differ, by keys that the table has or as bags; see ``by_rows``."""

    def done(aside: Aside) -> Program[ByRows]:
        if not operation.keys:
            return as_bags(context, engine, operation, snapshot, name, aside)
        return by_keys(context, engine, operation, snapshot, name, aside, beneath)

    return (yield from with_aside(name, done))

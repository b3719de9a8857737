"""Whether files that came to a table may hold rows that somebody has asked for.

By partition values and statistics alone, as the log or HEAD tells them: "no" is sure, and what is
not known is a "maybe".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.formats.fields import as_of
from lakevilla.formats.layout import Layout
from lakevilla.formats.pruning import may_match
from lakevilla.global_log.summaries import Added, statistics_text
from lakevilla.sql.expressions.tree import Expr

#: What is known of an added file: its partition values and statistics, as in the log.
Known = tuple[dict[str, str | None], str | None]


def known_of(added: Added) -> Known:
    """What a summary tells of a file."""
    return added.partition_values, statistics_text(added)


def may_hold(layout: Layout, asked: Sequence[Expr | None], added: Iterable[Known]) -> bool:
    """Whether one of the files may hold a row that was asked for; None asks for all rows."""
    files = list(added)
    if not files or not asked:
        return False
    here = [as_of(where, layout) for where in asked]
    if None in here:
        return True
    values = [list(partition_values.items()) for partition_values, _ in files]
    table = pa.table(
        {
            "partition_values": pa.array(values, pa.map_(pa.string(), pa.string())),
            "stats": pa.array([stats for _, stats in files], pa.string()),
        }
    )
    return any(
        pc.any(may_match(table, layout, where)).as_py() for where in here if where is not None
    )

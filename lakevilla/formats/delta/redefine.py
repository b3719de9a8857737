"""A table defined again as one of its other states defines it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import REPLACED, VOIDED, Change, replaced_between
from lakevilla.formats.delta.metadata.column_mapping import MAX_COLUMN_ID
from lakevilla.formats.delta.metadata.layout import DeltaDefinition
from lakevilla.formats.delta.metadata.protocol import (
    GUARD,
    is_guarded,
    with_features,
    writer_features,
)


def redefined(
    now: DeltaDefinition, metadata: Mapping[str, Any], protocol: Mapping[str, Any]
) -> Change:
    """See ``formats.base.TableFormat.redefine``."""
    if metadata.get("id") != now.metadata.get("id"):
        raise InvalidOperation(
            f"table {now.table} has another id in that state: it was replaced since, and can't be "
            "defined as it was then; read that state, and overwrite the table with it",
            table=now.table,
        )
    had = now.metadata.get("configuration") or {}
    configuration = _counted_up(had, metadata.get("configuration") or {})
    wanted = {**metadata, "configuration": configuration}
    needed = _features(now.protocol, protocol)
    return Change(
        metadata=None if wanted == now.metadata else wanted,
        protocol=None if needed == now.protocol else needed,
    )


def _counted_up(had: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """The properties that are wanted; what only counts up stays as high as it is."""
    found = dict(wanted)
    highest = max((int(c[MAX_COLUMN_ID]) for c in (had, wanted) if MAX_COLUMN_ID in c), default=0)
    if MAX_COLUMN_ID in wanted:
        found[MAX_COLUMN_ID] = str(highest)
    if (times := replaced_between(had, wanted)) is not None:
        found[REPLACED] = times
    if VOIDED in had:
        found[VOIDED] = had[VOIDED]
    return found


def _features(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A protocol never loses a feature: the log may need it still. A guard is left as it is."""
    features = writer_features(wanted) - {GUARD}
    unguarded = not is_guarded(now) and not is_guarded(wanted)
    if unguarded and writer_features(now) <= features:
        return dict(wanted)
    return with_features(now, features)

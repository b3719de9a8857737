"""Spark's ``Column`` objects as expressions of LakeVilla, where both mean the same.

``connect`` reads the plan of a Spark Connect client and ``classic`` the JVM's nodes; both return
``nodes``. ``translate`` makes a tree of them, typed as Spark types it, so that the result is the
value that Spark would compute. A column with another meaning in the language is refused.
"""

from lakevilla.engines.spark.columns.nodes import SessionTerms
from lakevilla.engines.spark.columns.translate import (
    FrameIds,
    Translator,
    frame_alias,
    frame_ids,
    is_column,
    read_column,
)

__all__ = [
    "FrameIds",
    "SessionTerms",
    "Translator",
    "frame_alias",
    "frame_ids",
    "is_column",
    "read_column",
]

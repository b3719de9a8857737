"""The type of rows for the caller of a lake: a ``pyarrow.Table``, or a DataFrame of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    # ``Lake`` and ``Transaction`` without a parameter are those of an embedded lake.
    Frame = TypeVar("Frame", default=pa.Table)
else:
    from typing import TypeVar

    Frame = TypeVar("Frame")

__all__ = ["Frame"]

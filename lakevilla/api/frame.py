"""The type of a lake's frames: ``pyarrow.Table``, or a DataFrame of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    # By default, the parameter of ``Lake`` and ``Transaction`` is Arrow's table.
    Frame = TypeVar("Frame", default=pa.Table)
else:
    from typing import TypeVar

    Frame = TypeVar("Frame")

__all__ = ["Frame"]

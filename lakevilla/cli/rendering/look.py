"""In which form rows are asked for, and what the place shows to which they go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Format = Literal["table", "vertical", "csv", "json", "ndjson", "markdown"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True, slots=True)
class Look:
    """What a terminal can show.

    ``width`` None is one without an end, where ``widest`` may still cut single cells. ``ascii``
    is for an encoding without lines and dots.
    """

    width: int | None = None
    widest: int | None = None
    colour: bool = False
    ascii: bool = False

"""How commands name a state of the lake: a version, a time or a ref."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import datetime

from lakevilla.cli.command import moment
from lakevilla.errors import RefNotFound


def state(text: str, argument: str) -> int | datetime | str:
    """What is meant. No ref is called like a number, and none has a colon in its name."""
    if text.isascii() and text.isdigit():
        return int(text)
    found = moment(text, argument) if ":" in text else None
    return text if found is None else found


@contextlib.contextmanager
def time_hint(*given: str | None) -> Iterator[None]:
    """Where a day was taken for the name of a ref, say how a time is written."""
    try:
        yield
    except RefNotFound as error:
        for text in given:
            if text is not None and re.fullmatch(r"\d{4}-?\d\d.*", text) and text in error.message:
                error.message += (
                    f"; if {text!r} is meant as a time, write it as 2026-01-31T12:00:00Z"
                )
        raise

"""Planted bugs of files that are promised until something needs their contents (note 67)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakevilla.transaction.state import files
from lakevilla_testing.planted.bugs import instead, planted


@planted()
def promises_are_committed() -> Iterator[None]:
    """A commit names files that were never made."""

    def make_promised(*_: Any, **__: Any) -> Any:
        yield from ()

    with instead(files.make_promised, make_promised):
        yield

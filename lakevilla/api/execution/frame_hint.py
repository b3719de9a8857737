"""A table of a statement that is not there may be meant as a variable of the caller's.

That is said at the end of the error. Who takes no frames, as the command line and DB-API, says the
rest: ``without_frames``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lakevilla.errors import LakeVillaError, TableNotFound

__all__ = ["frames_go_in_views", "without_frames"]

_SAID = "_frames_said"


@contextmanager
def frames_go_in_views(tables: Mapping[str, str]) -> Iterator[None]:
    """Add to an error how a frame is given by the name of a table that is not there."""
    try:
        yield
    except TableNotFound as error:
        named = [name for name, location in tables.items() if location == error.table]
        if named and named[0].isidentifier() and "did you mean" not in error.message:
            said = f"; a frame goes in as views={{{named[0]!r}: {named[0]}}}"
            error.message += said
            error.args = (error.message,)
            setattr(error, _SAID, said)
        raise


def without_frames(error: LakeVillaError) -> str:
    """The message of an error for callers who have no frames to give."""
    said: str = getattr(error, _SAID, "")
    return error.message.removesuffix(said)

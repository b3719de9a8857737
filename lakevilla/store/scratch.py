"""Errors of the disk with this process's temporary files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from lakevilla.errors import StoreError
from lakevilla.store.backends.local import refusal_by


def scratch_root() -> str:
    """Return the directory below which this process keeps its temporary files.

    Raises
    ------
    StoreError
        Python has tried all that there are, and none takes a file.
    """
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        raise StoreError(
            "no directory of this machine takes temporary files: free some space, or set TMPDIR to "
            "a directory on a disk that has some and start the process again",
            permanent=True,
        ) from None


@contextmanager
def on_scratch(directory: str) -> Iterator[None]:
    """Raise an error that names the directory if its disk takes no write within the block.

    Raises
    ------
    StoreError
    """
    try:
        yield
    except OSError as error:
        why = refusal_by(error)
        if why is None:
            raise
        raise StoreError(scratch_refusal(directory, why), permanent=True) from None


def scratch_refusal(directory: str, why: str) -> str:
    """Return the message about a disk of temporary files that takes no write."""
    cause = why.partition(";")[0]
    return (
        f"temporary files could not be written in {directory} ({cause}): free some space there, "
        "set TMPDIR to a directory on a larger disk and start the process again, or raise "
        "memory_limit_bytes in the settings"
    )

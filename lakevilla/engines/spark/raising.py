"""How our errors leave a worker of Spark: with what they say before the lines of the traceback."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lakevilla.errors import LakeVillaError, StoreError


@contextmanager
def said_first() -> Iterator[None]:
    """A block whose errors of ours begin with their message in the text that Spark makes of them.

    Spark formats a traceback and puts it into its own error. Python writes the cause of an error
    above it, and a cause that was never raised is its message alone.
    """
    try:
        yield
    except LakeVillaError as error:
        if hasattr(error, _SAID):  # by a block within this one
            raise
        raise _shown(error) from None


_SAID = "_said_first"


def _shown(error: LakeVillaError) -> LakeVillaError:
    """The same error with itself as its cause, which nobody takes away: Spark tries to."""
    kind = type(error)
    said = pickle.loads(pickle.dumps(error))
    own = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__cause__": property(lambda _: said, lambda *_: None),
        _SAID: True,
    }
    own_kind: Any = type(kind.__name__, (kind,), own)
    shown: LakeVillaError = own_kind.__new__(own_kind)  # some kinds are made of more than a text
    Exception.__init__(shown, error.message)
    shown.__dict__.update(error.__dict__)
    return shown


@contextmanager
def naming_worker(root: str) -> Iterator[None]:
    """A block in which an error of the store says which worker met it, and at which lake.

    The driver may reach what a worker can't: it may have credentials that the worker lacks.
    """
    try:
        yield
    except StoreError as error:
        if type(error) is StoreError and error.table is None:
            place = "" if root in error.message else f"{root}: "
            error.message = f"worker {socket.gethostname()}: {place}{error.message}"
            error.args = (error.message,)
        raise

"""The border of the library: where errors that name a caller's mistake begin for the caller."""

from __future__ import annotations

import functools
import os
import sysconfig
from collections.abc import Callable, Iterator
from types import FunctionType, TracebackType
from typing import Any, TypeVar

from lakevilla.errors import (
    InvalidOperation,
    RefExists,
    RefNotFound,
    TableExists,
    TableNotFound,
    TransactionNotFound,
    VersionNotFound,
)

__all__ = ["at_border", "with_border"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: The variable with which tracebacks keep the library's frames: ``full``.
_VARIABLE = "LAKEVILLA_TRACEBACK"
#: The errors that a caller mends in its own code, so that the library's frames tell it nothing.
_MISTAKES = (
    InvalidOperation,
    RefExists,
    RefNotFound,
    TableExists,
    TableNotFound,
    TransactionNotFound,
    VersionNotFound,
)
_LIBRARY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PYTHONS = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))


def with_border(kind: type[T]) -> type[T]:
    """Decorate a class: its public methods are called at the border.

    A property has none: it reads what the object has.
    """
    for name, method in list(vars(kind).items()):
        if isinstance(method, FunctionType) and (name[0] != "_" or name == "__getitem__"):
            setattr(kind, name, at_border(method))
    return kind


def at_border(function: F) -> F:
    """Decorate a function: the traceback of a caller's mistake ends where the caller calls it.

    The caller's own frames stay, also those of a function that it has passed. All other errors
    keep all frames.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except _MISTAKES as error:
            if os.environ.get(_VARIABLE) == "full":
                raise
            args, kwargs = (), {}  # a tool that shows a traceback's variables shows no secrets
            raise error.with_traceback(  # noqa: B904 (its cause and context stay)
                _of_caller(error.__traceback__)
            )

    return call  # type: ignore[return-value]


def _of_caller(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of the library, and of what Python runs for it."""
    kept: TracebackType | None = None
    for one in reversed(list(_links(traceback))):
        if not _is_inner(one.tb_frame.f_code.co_filename):
            kept = TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return kept


def _links(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_inner(file: str) -> bool:
    """Return whether a file is the library's or Python's own."""
    return file.startswith(_LIBRARY) or (
        file.startswith((_PYTHONS, "<frozen ")) and not file.startswith(_INSTALLED)
    )

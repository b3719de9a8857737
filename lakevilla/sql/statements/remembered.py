"""What was made of a text, for when the same text comes again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Concatenate, ParamSpec, TypeVar

Rest = ParamSpec("Rest")
Made = TypeVar("Made")

_TEXTS = 256
#: Longer texts carry rows, and hardly come again, but are looked at from several sides while they
#: are run: the last ones are kept, where what is made of them is small.
_LONG, _LONG_TEXTS = 20_000, 2


def remembered(
    make: Callable[Concatenate[str, Rest], Made],
) -> Callable[Concatenate[str, Rest], Made]:
    """``make``, which is asked once for the same text and further arguments.

    Nobody may change what it returns.
    """
    return _by_length(make, lru_cache(maxsize=_LONG_TEXTS)(make))


def remembered_if_short(
    make: Callable[Concatenate[str, Rest], Made],
) -> Callable[Concatenate[str, Rest], Made]:
    """As ``remembered``, for what takes far more memory than the text of which it is made."""
    return _by_length(make, make)


def _by_length(
    make: Callable[Concatenate[str, Rest], Made], of_long: Callable[Concatenate[str, Rest], Made]
) -> Callable[Concatenate[str, Rest], Made]:
    known = lru_cache(maxsize=_TEXTS)(make)

    def ask(text: str, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Made:
        found = of_long if len(text) > _LONG else known
        return found(text, *args, **kwargs)  # type: ignore[arg-type]  # all can be hashed

    return ask

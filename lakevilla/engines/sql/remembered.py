"""What was made of a text, for when the same text comes again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Concatenate, ParamSpec, TypeVar

Rest = ParamSpec("Rest")
Made = TypeVar("Made")

_TEXTS = 256
#: Longer texts carry rows, and hardly come again: to keep them would only take memory.
_LONG = 20_000


def remembered(
    make: Callable[Concatenate[str, Rest], Made],
) -> Callable[Concatenate[str, Rest], Made]:
    """``make``, which is asked once for the same text and further arguments.

    Nobody may change what it returns.
    """
    known = lru_cache(maxsize=_TEXTS)(make)

    def ask(text: str, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Made:
        if len(text) > _LONG:
            return make(text, *args, **kwargs)
        return known(text, *args, **kwargs)  # type: ignore[arg-type]  # all can be hashed

    return ask

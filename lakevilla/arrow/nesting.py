"""JSON of others, which may be nested as deeply as they like.

A parser, and whatever walks over what it gives, ends with ``RecursionError`` at some depth that
depends on the caller's. Here that is one more way in which a text is no JSON of a table's.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

import msgspec

__all__ = ["DEPTH", "JsonDecoder", "document"]

#: Objects and lists within each other, at most, where nothing else bounds them: a column of a
#: column takes three in the schema of a table.
DEPTH = 250

T = TypeVar("T")


class JsonDecoder(Generic[T]):
    """A decoder as msgspec's, for which a text that is nested too deeply is malformed.

    Parameters
    ----------
    kind : type, optional
        What the text says. Without it anything, nested no deeper than ``DEPTH``.
    """

    @overload
    def __init__(self: JsonDecoder[Any], *, float_hook: Any = None) -> None: ...

    @overload
    def __init__(self, kind: type[T], *, float_hook: Any = None) -> None: ...

    def __init__(self, kind: Any = Any, *, float_hook: Any = None) -> None:
        self._decode = msgspec.json.Decoder(kind, float_hook=float_hook).decode
        self._is_open = kind is Any

    def decode(self, text: str | bytes | msgspec.Raw) -> T:
        """What a text says.

        Raises
        ------
        msgspec.DecodeError
            It is no JSON, not of the kind, or nested too deeply: a ``ValueError``.
        """
        try:
            found: T = self._decode(text)
        except RecursionError:
            raise _too_deep() from None
        if self._is_open:
            refuse_deep(found)
        return found


_decoder: JsonDecoder[Any] = JsonDecoder()


def document(text: str | bytes | msgspec.Raw) -> Any:
    """What a text of JSON says, whatever it is. Raises ``ValueError``."""
    return _decoder.decode(text)


def refuse_deep(value: Any) -> None:
    """Raise ``msgspec.DecodeError`` if dicts and lists lie deeper in each other than ``DEPTH``."""
    level, depth = [value], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        if depth > DEPTH:
            raise _too_deep()
        level = [
            inner for one in level for inner in (one.values() if isinstance(one, dict) else one)
        ]


def _too_deep() -> msgspec.DecodeError:
    return msgspec.DecodeError(f"it is nested deeper than {DEPTH} levels")

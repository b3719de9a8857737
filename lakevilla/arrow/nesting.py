"""JSON of foreign writers, which may be nested to any depth.

A parser, and any code that walks over its result, ends with ``RecursionError`` at some depth that
depends on the caller's. Here such a text is invalid, like any other that is no JSON of a table's.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

import msgspec

__all__ = ["DEPTH", "JsonDecoder", "document"]

#: The greatest depth of objects and lists within each other, where nothing else bounds it: a
#: column of a column takes three levels in the schema of a table.
DEPTH = 250

T = TypeVar("T")


class JsonDecoder(Generic[T]):
    """A decoder like msgspec's, for which a text that is nested too deeply is malformed.

    Parameters
    ----------
    kind : type, optional
        The type of the content. Without it any content, nested no deeper than ``DEPTH``.
    """

    @overload
    def __init__(self: JsonDecoder[Any], *, float_hook: Any = None) -> None: ...

    @overload
    def __init__(self, kind: type[T], *, float_hook: Any = None) -> None: ...

    def __init__(self, kind: Any = Any, *, float_hook: Any = None) -> None:
        self._decode = msgspec.json.Decoder(kind, float_hook=float_hook).decode
        self._is_open = kind is Any

    def decode(self, text: str | bytes | msgspec.Raw) -> T:
        """Decode a JSON text.

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
    """Decode any text of JSON. Raises ``ValueError``."""
    return _decoder.decode(text)


def refuse_deep(value: Any) -> None:
    """Raise ``msgspec.DecodeError`` if dicts and lists are nested deeper than ``DEPTH``."""
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

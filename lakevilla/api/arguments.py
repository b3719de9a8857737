"""Check the arguments of public methods, parameters of queries, and properties of tables."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from types import FunctionType
from typing import TYPE_CHECKING, ClassVar, Never

from lakevilla.arrow.scalars import plain
from lakevilla.errors import InvalidOperation
from lakevilla.formats.views import VIEW_PROPERTY
from lakevilla.settings import MOST_SECONDS, is_unicode, shown
from lakevilla.store.location import refuse_half_scheme

__all__ = [
    "Hinted",
    "check_choice",
    "check_columns",
    "check_columns_by",
    "check_flag",
    "check_hours",
    "check_mode",
    "check_names",
    "check_number",
    "check_place",
    "check_size",
    "check_text",
    "check_texts",
    "check_views",
    "check_z_order",
    "tables_to_register",
    "verbs_elsewhere",
    "parameters",
    "PropertyValue",
    "property_names",
    "property_texts",
]

# -------------------- arguments
#
# Arguments of callers. Those without a possible meaning are refused before anything is read.


_MOST_HOURS = MOST_SECONDS / 3600
_MOST_WHOLE = 2**63 - 1


class Hinted:
    """An object whose error for a missing method names the object that has it.

    Example: the error of ``lake.append`` says that ``append`` is a transaction's verb.
    """

    __slots__ = ()
    #: Hints by the name of the missing attribute.
    _elsewhere: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        """Have Python's errors name inherited methods by the class that users know."""
        super().__init_subclass__()
        for part in cls.__mro__[1:]:
            for name, method in list(vars(part).items()):
                if isinstance(method, FunctionType) and name[0] != "_" and name not in vars(cls):
                    setattr(cls, name, _called(method, f"{cls.__name__}.{name}"))

    if not TYPE_CHECKING:  # otherwise a type checker would accept every name as an attribute

        def __getattr__(self, name: str) -> Never:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            hint = self._elsewhere.get(name)
            raise AttributeError(f"{message}: {hint}" if hint else message, name=name, obj=self)


def _called(method: FunctionType, name: str) -> FunctionType:
    """Return a copy of the method under another name, which Python's errors on arguments show."""
    same = FunctionType(
        method.__code__,
        method.__globals__,
        method.__name__,
        method.__defaults__,
        method.__closure__,
    )
    same.__kwdefaults__ = method.__kwdefaults__
    functools.update_wrapper(same, method)
    del same.__wrapped__  # type: ignore[attr-defined]
    vars(same).update(vars(method))  # the attributes of a method that is itself a wrapper
    same.__qualname__ = name
    return same


def verbs_elsewhere(why: str) -> dict[str, str]:
    """Return, for each verb of a transaction, the hint that another object's error gives."""
    verbs = ("alter", "append", "delete", "merge", "overwrite", "update", "upsert")
    return {verb: f"{why}: lake.run(lambda txn: txn.{verb}(...))" for verb in verbs}


def check_number(name: str, value: object) -> int:
    """Return a count or a version; a number of NumPy is accepted too.

    Raises
    ------
    InvalidOperation
    """
    number = _whole(value)
    if number is None or number < 0:
        raise InvalidOperation(f"{name} must be a whole number, 0 or more, not {shown(value)}")
    if number > _MOST_WHOLE:
        raise InvalidOperation(f"{name} must be a whole number below 2**63, not {shown(value)}")
    return number


def check_flag(name: str, value: object) -> bool:
    """Return True or False; refuse values of other types, because ``bool("false")`` is true.

    Raises
    ------
    InvalidOperation
    """
    if isinstance(value, bool) or type(value).__module__ == "numpy":
        found = plain(value, name)
        if isinstance(found, bool):
            return found
    raise InvalidOperation(f"{name} must be True or False, not {shown(value)}")


def check_text(name: str, value: object) -> str:
    """Return the given text; refuse an empty one.

    Raises
    ------
    InvalidOperation
    """
    if not isinstance(value, str) or not value.strip() or not is_unicode(value):
        empty = isinstance(value, str) and not value.strip()
        expected = "text that is not empty" if empty else "text"
        raise InvalidOperation(f"{name} must be {expected}, not {shown(value)}")
    return str.__str__(value)


def check_place(name: str, value: object) -> str:
    """Return a table's place: a name, a URI or a path. A ``Path`` is a path of this machine.

    Raises
    ------
    InvalidOperation
    """
    if isinstance(value, os.PathLike):
        # A path of an object store has a scheme in its text; as a local path its files would be
        # downloaded.
        text = str(value)
        refuse_half_scheme(text)
        return text if "://" in text else os.path.abspath(value)
    return check_text(name, value)


def _whole(value: object) -> int | None:
    """Return a whole number of Python or NumPy as an int; None if the value is not one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    is_numpy = type(value).__module__ == "numpy" and hasattr(value, "__index__")
    found = plain(value) if is_numpy and getattr(value, "ndim", 1) == 0 else None
    return found if type(found) is int else None


def check_columns(columns: object) -> list[str] | None:
    """Return the requested columns as a list; None: all of them.

    Raises
    ------
    InvalidOperation
        The value holds no names, or the list is empty: rows without columns have only a count.
    """
    if columns is None:
        return None
    if isinstance(columns, str):
        is_predicate = any(sign in columns for sign in "=<>")
        instead = f"where={columns!r}, or a list" if is_predicate else f"columns=[{columns!r}]"
        raise InvalidOperation(f"columns must be a list of names, not a string: pass {instead}")
    named = _names(columns)
    if named is None:
        raise InvalidOperation(f"columns must be a list of names, not {shown(columns)}")
    if not named:
        raise InvalidOperation(
            "columns is empty: name at least one column, or leave it out for all of them"
        )
    return named


def check_names(argument: str, given: object) -> list[str]:
    """Return names of columns, constraints or properties, in a list.

    Raises
    ------
    InvalidOperation
        The value is a single string, whose letters would be taken for names, or holds other values
        than non-empty strings.
    """
    if isinstance(given, str):
        raise InvalidOperation(
            f"{argument} must be a list of names, not a string: pass {argument}=[{given!r}]"
        )
    named = _names(given)
    if named is None or not all(named):
        raise InvalidOperation(f"{argument} must be a list of names, not {shown(given)}")
    return [str.__str__(name) for name in named]


def check_texts(argument: str, given: object) -> dict[str, str]:
    """Return text by name: new names of columns, rules of constraints.

    Raises
    ------
    InvalidOperation
        The value is no mapping of non-empty strings to such strings.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(
        isinstance(text, str) and text.strip() and "\0" not in text and is_unicode(text)
        for pair in given.items()
        for text in pair
    ):
        raise InvalidOperation(f"{argument} maps names to texts, not {shown(given)}")
    return {str.__str__(name): str.__str__(text) for name, text in given.items()}


def check_views(given: object) -> dict[str, object]:
    """Return the given frames, by the names that the statement uses for them.

    Raises
    ------
    InvalidOperation
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(n, str) and n for n in given):
        raise InvalidOperation(
            'views maps names to data: pass views={"name": data}, and write the name in the '
            "statement"
        )
    return dict(given)


def check_hours(table: str, hours: object) -> None:
    """Refuse a retention that is no number, or is longer than the age of any possible file.

    Raises
    ------
    InvalidOperation
    """
    if hours is None:
        return
    is_number = isinstance(hours, int | float) and not isinstance(hours, bool)
    if not is_number or not 0 <= hours <= _MOST_HOURS:  # type: ignore[operator]
        raise InvalidOperation(
            f"vacuum of table {table}: retention_hours must be a number, 0 or more and at most "
            f"{_MOST_HOURS:.12g}, not {shown(hours)}",
            table=table,
        )


def check_size(table: str, size: object) -> int | None:
    """Return a target size that a file can have; None if there is none.

    Raises
    ------
    InvalidOperation
    """
    if size is None:
        return None
    number = _whole(size)
    if number is None or not 0 < number <= _MOST_WHOLE:
        raise InvalidOperation(
            f"optimize of table {table}: target_file_size_bytes must be a whole number of bytes, "
            f"more than 0 and below 2**63, not {shown(size)}",
            table=table,
        )
    return number


def check_z_order(table: str, columns: object) -> Sequence[str]:
    """Return the columns of a Z curve, one or several.

    Raises
    ------
    InvalidOperation
    """
    named = _names([columns] if isinstance(columns, str) else columns)
    if named is None or not all(named):
        raise InvalidOperation(
            f"optimize of table {table}: z_order_by must be a column's name or a list of names, "
            f"not {shown(columns)}",
            table=table,
        )
    return named


def _names(value: object) -> list[str] | None:
    """Return names as a list, from any iterable of strings; None if the value is not one.

    A mapping is not accepted: its values would be ignored.
    """
    if isinstance(value, bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        return None
    found = list(value)
    return found if all(isinstance(name, str) for name in found) else None


def check_choice(name: str, value: object, *choices: str) -> None:
    """Refuse a value that an option does not accept.

    Raises
    ------
    InvalidOperation
    """
    if not isinstance(value, str) or value not in choices:
        raise InvalidOperation(f"{name} must be one of {', '.join(choices)}, not {shown(value)}")


def check_mode(name: str, value: object, *choices: str) -> None:
    """Refuse a value that a mode does not accept; None is accepted.

    Raises
    ------
    InvalidOperation
    """
    if value is not None and not (isinstance(value, str) and value in choices):
        words = " or ".join(map(repr, choices))
        raise InvalidOperation(f"{name} must be None or {words}, not {shown(value)}")


def check_columns_by(argument: str, given: object) -> list[str]:
    """Return the columns that an option names: a column's name, or a list of names.

    Raises
    ------
    InvalidOperation
    """
    named = _names([given] if isinstance(given, str) else given)
    if named is None or not all(named):
        raise InvalidOperation(
            f"{argument} must be a column's name or a list of names, not {shown(given)}"
        )
    return [str.__str__(name) for name in named]


def check_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return a copy of the metadata; refuse metadata that is not made of strings."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidOperation(f"metadata maps strings to strings, not {shown(metadata)}")
    entries = dict(metadata or {})
    texts = [text for pair in entries.items() for text in pair]
    if any(not isinstance(text, str) for text in texts):
        raise InvalidOperation(f"metadata maps strings to strings, not {shown(metadata)}")
    broken = [text for text in texts if not is_unicode(text)]
    if broken:
        raise InvalidOperation(
            f"metadata must be Unicode, and {broken[0]!r} has half of a surrogate pair: take it out"
        )
    return entries


def check_patterns(
    name: str, patterns: object, *, may_be_empty: bool = False
) -> tuple[str, ...] | None:
    """Refuse a value that is no sequence of strings; None stays None."""
    if patterns is None:
        return None
    is_empty = isinstance(patterns, Sequence) and not patterns and not may_be_empty
    if isinstance(patterns, str) or not isinstance(patterns, Sequence) or is_empty:
        raise InvalidOperation(f"{name} is a list of names, not {shown(patterns)}")
    return tuple(check_text(name, pattern) for pattern in patterns)


def tables_to_register(name: object, uri: object) -> dict[str, str]:
    """Return URIs by name, from the three forms of ``register``."""
    if name is None:
        raise InvalidOperation(
            "register was given no table: name at least one, or add all tables below the root "
            "with discover=True"
        )
    if isinstance(name, Mapping):
        if uri is not None:
            raise InvalidOperation("register takes a mapping of names to URIs, or a name and a URI")
        given = dict(name)
        if not given:
            raise InvalidOperation("register was given no table: name at least one")
    else:
        given = {check_text("name", name): name if uri is None else uri}
    return {check_text("name", key): check_place("uri", value) for key, value in given.items()}


# -------------------- parameters
#
# Values for the ``:name`` of a text: named, and of Python's own types.


_NAME = re.compile(r"[A-Za-z_]\w*")


def parameters(given: object, *, nested: bool = False) -> dict[str, object]:
    """Check the values given for the ``:name`` of a text, and return them by name.

    Their values are None, bool, int, float, Decimal, str, bytes, dates, times, UUID or lists of
    these; with ``nested`` also mappings.

    Raises
    ------
    InvalidOperation
        The values are given by position, a name is not valid, or a value is of another type.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        what = "by position" if isinstance(given, list | tuple) else f"as {shown(given)[:80]}"
        raise InvalidOperation(
            f"params are given by name, not {what}: write :n in the text, not ?, $1 or %s, and "
            'pass params={"n": value}'
        )
    found = {}
    for name, value in given.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidOperation(
                f"params has the name {shown(name)}, which no text can use: a name is a letter or "
                "_ and then letters, digits and _, written as :name"
            )
        found[str.__str__(name)] = plain(value, f"parameter :{name}", nested=nested)
    return found


# -------------------- properties
#
# Table properties that callers give, as text in the one spelling that every client understands.
#
# A log stores properties as text, and each client parses it by its own rules: all of them read
# ``True``, Python's spelling, as false (hazard 42). The format checks the meaning of a name.


#: The types in which a property's value may be given.
PropertyValue = str | bool | int | float | Decimal


def property_texts(argument: str, given: object) -> dict[str, str]:
    """Return properties as text: booleans in lower case, numbers in digits.

    Parameters
    ----------
    argument : str
        The argument's name, for messages.
    given : Mapping or None
        Values are str, bool, int, float or Decimal.

    Raises
    ------
    InvalidOperation
        The argument is no mapping, or a name or value has no unique spelling as text.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidOperation(
            f"{argument} maps names to values, and {shown(given)} does not: pass "
            f'{argument}={{"delta.appendOnly": "true"}}'
        )
    texts = {_name(argument, name): _text(name, value) for name, value in given.items()}
    if VIEW_PROPERTY in texts:
        raise InvalidOperation(f"{argument} can't have {VIEW_PROPERTY}: CREATE VIEW makes a view")
    return texts


def property_names(argument: str, given: object) -> list[str]:
    """Return the names of properties, in a list.

    Raises
    ------
    InvalidOperation
    """
    return [_name(argument, name) for name in check_names(argument, given)]


def _name(argument: str, name: object) -> str:
    if not isinstance(name, str) or not name.strip() or not is_unicode(name):
        raise InvalidOperation(f"{argument} has the name {shown(name)}: name properties by text")
    return str.__str__(name)


def _text(name: str, value: object) -> str:
    if value is None:
        raise InvalidOperation(
            f"property {name!r} is None, which no table can store: leave it out, or remove it with "
            f"alter(unset_properties=[{name!r}])"
        )
    found = plain(value, f"property {name!r}") if _may_be_one(value) else value
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, str) and is_unicode(found):
        return found
    if isinstance(found, int) and found.bit_length() <= 64:
        return str(found)
    if isinstance(found, float) and math.isfinite(found):
        return repr(found)
    if isinstance(found, Decimal) and found.is_finite():
        return format(found, "f")
    raise InvalidOperation(
        f"property {name!r} is {shown(value)} of type {type(value).__name__}, which has more than "
        "one spelling as text: pass a str, bool, int, float or Decimal instead"
    )


def _may_be_one(value: object) -> bool:
    """Return whether a value may be another library's scalar: its Python value must be checked."""
    return hasattr(value, "dtype") or hasattr(value, "as_py") or isinstance(value, str | int)

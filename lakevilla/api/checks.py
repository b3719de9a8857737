"""What callers pass, refused where it can mean nothing: before anything is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakevilla.errors import InvalidOperation
from lakevilla.settings import MOST_SECONDS, shown

__all__ = [
    "check_choice",
    "check_columns",
    "check_hours",
    "check_names",
    "check_number",
    "check_size",
    "check_texts",
    "check_views",
    "check_z_order",
]

_MOST_HOURS = MOST_SECONDS / 3600
_MOST_WHOLE = 2**63 - 1


def check_number(name: str, value: object) -> None:
    """Refuse what is no count and no version.

    Raises
    ------
    InvalidOperation
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidOperation(f"{name} must be a whole number, 0 or more, not {shown(value)}")
    if value > _MOST_WHOLE:
        raise InvalidOperation(f"{name} must be a whole number below 2**63, not {shown(value)}")


def check_columns(columns: object) -> list[str] | None:
    """The columns asked for as a list; None: all of them.

    Raises
    ------
    InvalidOperation
        They are no names, or none: rows without columns say nothing but how many they are.
    """
    if columns is None:
        return None
    if isinstance(columns, str):
        raise InvalidOperation(
            f"columns must be a list of names, not a string: pass columns=[{columns!r}]"
        )
    named = _names(columns)
    if named is None:
        raise InvalidOperation(f"columns must be a list of names, not {shown(columns)}")
    if not named:
        raise InvalidOperation(
            "columns names none: name at least one column, or leave it out for all of them"
        )
    return named


def check_names(argument: str, given: object) -> list[str]:
    """Names of columns, constraints or properties, in a list.

    Raises
    ------
    InvalidOperation
        It is one name by itself, whose letters would be taken for names, or holds no names.
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
    """Text by name: new names of columns, rules of constraints.

    Raises
    ------
    InvalidOperation
        It is no mapping, or one with something else in it.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(
        isinstance(text, str) and text.strip() for pair in given.items() for text in pair
    ):
        raise InvalidOperation(f"{argument} maps names to texts, not {shown(given)}")
    return {str.__str__(name): str.__str__(text) for name, text in given.items()}


def check_views(given: object) -> dict[str, object]:
    """Frames by the names that a statement calls them by.

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
    """Refuse a retention that is none, or one that reaches further back than any file.

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


def check_size(table: str, size: object) -> None:
    """Refuse a target size that no file can have.

    Raises
    ------
    InvalidOperation
    """
    if size is None:
        return
    is_whole = isinstance(size, int) and not isinstance(size, bool)
    if not is_whole or not 0 < size <= _MOST_WHOLE:  # type: ignore[operator]
        raise InvalidOperation(
            f"optimize of table {table}: target_file_size_bytes must be a whole number of bytes, "
            f"more than 0 and below 2**63, not {shown(size)}",
            table=table,
        )


def check_z_order(table: str, columns: object) -> Sequence[str]:
    """The columns of a Z curve, one or several.

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
    """Names as a list, whatever holds them; None if they are none."""
    if isinstance(value, bytes | bytearray) or not isinstance(value, Iterable):
        return None
    found = list(value)
    return found if all(isinstance(name, str) for name in found) else None


def check_choice(name: str, value: object, *choices: str) -> None:
    if value not in choices:
        raise InvalidOperation(f"{name} must be one of {', '.join(choices)}, not {value!r}")

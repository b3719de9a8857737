"""The checks that an operator gives, by name: a merge has to pass all of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.sql.statements.select import select_of

#: The table of a file whose SELECTs must find no row.
_NO_ROWS = "no_rows"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def checks_of(pairs: Iterable[str], no_rows: Iterable[str], file: Path | None) -> dict[str, str]:
    """Return the checks that an operator has given, each as a SELECT of one boolean.

    Parameters
    ----------
    pairs : iterable of str
        ``NAME=SQL``: a SELECT of one boolean.
    no_rows : iterable of str
        ``NAME=SQL``: a SELECT that must find no row.
    file : Path, optional
        A file of TOML with ``NAME = "SQL"`` for both, those of ``no_rows`` in a table of that name.

    Raises
    ------
    InvalidOperation
        A check has no name, another's name, or is no SELECT; or the file can't be read.
    """
    in_file = {} if file is None else _content(file)
    without = in_file.pop(_NO_ROWS, {})
    found: dict[str, str] = {}
    for name, sql in chain(in_file.items(), map(_pair, pairs)):
        _add(found, name, sql)
    for name, sql in chain(_of_table(without).items(), map(_pair, no_rows)):
        _add(found, name, sql)
        found[name] = f"SELECT count(*) = 0 FROM (\n{sql}\n)"
    return found


def _pair(text: str) -> tuple[str, str]:
    name, _, sql = text.partition("=")
    return name, sql


def _of_table(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise InvalidOperation(
            f"{_NO_ROWS} of the file of checks is no table: write [{_NO_ROWS}], and below it a "
            'line `name = "SELECT ..."` for each'
        )
    return found


def _content(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidOperation(f"checks of {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOperation(
            f'checks of {file}: {error}; write a line `name = "SELECT ..."` for each'
        ) from None


def _add(found: dict[str, str], name: str, sql: object) -> None:
    """Add a check to those that are found."""
    if name in found:
        raise InvalidOperation(f"check {name} is given twice: give each a name of its own")
    if not isinstance(sql, str):
        raise InvalidOperation(f"check {name} is no text: write a SELECT in quotes")
    if not (_NAME.fullmatch(name) and sql.strip()):
        raise InvalidOperation(
            f"check {name!r} is not understood: write NAME=SQL, as in "
            "not_negative=SELECT min(qty) >= 0 FROM stock"
        )
    try:
        select_of(sql)
    except LakeVillaError as error:
        raise InvalidOperation(f"check {name}: {error.message}") from None
    found[name] = sql

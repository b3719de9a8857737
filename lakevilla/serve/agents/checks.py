"""The checks that an operator gives, by name: a merge has to pass all of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.sql.statements.select import select_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def checks_of(pairs: Iterable[str], file: Path | None) -> dict[str, str]:
    """Return the checks that the command line and a file name; each is a SELECT of one boolean.

    Raises
    ------
    InvalidOperation
        A check has no name, another's name, or is no SELECT; or the file can't be read.
    """
    found = {} if file is None else _checks_in(file)
    for pair in pairs:
        name, _, sql = pair.partition("=")
        if name in found:
            raise InvalidOperation(f"check {name} is given twice: give each a name of its own")
        found[name] = sql
    for name, sql in found.items():
        _refuse_unless_a_check(name, sql)
    return found


def _checks_in(file: Path) -> dict[str, str]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidOperation(f"checks of {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOperation(
            f'checks of {file}: {error}; write a line `name = "SELECT ..."` for each'
        ) from None
    for name, sql in found.items():
        if not isinstance(sql, str):
            raise InvalidOperation(f"check {name} of {file} is no text: write a SELECT in quotes")
    return dict(found)


def _refuse_unless_a_check(name: str, sql: str) -> None:
    if not (_NAME.fullmatch(name) and sql.strip()):
        raise InvalidOperation(
            f"check {name!r} is not understood: write NAME=SQL, as in "
            "not_negative=SELECT min(qty) >= 0 FROM stock"
        )
    try:
        select_of(sql)
    except LakeVillaError as error:
        raise InvalidOperation(f"check {name}: {error.message}") from None

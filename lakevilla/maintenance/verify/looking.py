"""Looking at data files, some at a time: by their hashes, their footers or their sizes.

It knows files by what is asked of them alone, so that it can be done elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from lakevilla.errors import CorruptObject, InvalidOperation
from lakevilla.maintenance.verify.footers import rows_in_footer
from lakevilla.store.base import Missing
from lakevilla.store.content import Damage, HashedFile, compare_all
from lakevilla.store.effects import Program, parallel
from lakevilla.store.effects import stat as object_info

How = Literal["hash", "footer", "size"]
#: What is looked at as one: so many files, or bytes to be fetched.
_MOST_FILES = 128
_MOST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AskedFile:
    """A file, what is known of it, and how closely to look; ``rows`` may not be known."""

    key: str
    size: int
    rows: int | None
    hash: str | None
    table: str
    how: How


def in_portions(files: Iterable[AskedFile]) -> list[list[AskedFile]]:
    """The files in order, in portions of about as much work."""
    portions: list[list[AskedFile]] = []
    size = _MOST_BYTES
    for file in files:
        if size >= _MOST_BYTES or len(portions[-1]) >= _MOST_FILES:
            portions.append([])
            size = 0
        portions[-1].append(file)
        size += file.size if file.how == "hash" else 0
    return portions


def look_into(files: Sequence[AskedFile]) -> Program[list[Damage | None]]:
    """What is wrong with each of the files."""
    try:
        return (yield from _look_into(files))
    except InvalidOperation as error:
        if len(files) == 1:
            return [Damage(error.message, is_elsewhere=True)]
    found: list[Damage | None] = []
    for file in files:
        found += yield from look_into([file])
    return found


def _look_into(files: Sequence[AskedFile]) -> Program[list[Damage | None]]:
    whole = [file for file in files if file.how == "hash"]
    others = [file for file in files if file.how != "hash"]
    hashed = [HashedFile(one.key, one.size, one.hash or "", one.table) for one in whole]
    compared = yield from compare_all(hashed)
    by_end = yield from parallel([_look_at_end(one) for one in others])
    wrong = dict(zip([*whole, *others], [*compared, *by_end], strict=True))
    return [wrong[file] for file in files]


def _look_at_end(file: AskedFile) -> Program[Damage | None]:
    info = yield from object_info(file.key)
    if isinstance(info, Missing):
        return Damage("is gone although the table names it", is_missing=True)
    if info.size != file.size:
        return Damage(f"has {info.size} bytes, and the table's log says {file.size}")
    if file.how == "size":
        return None
    try:
        rows = yield from rows_in_footer(file.key, file.size)
    except CorruptObject as error:
        return Damage(error.message)
    if rows is None or file.rows is None or rows == file.rows:
        return None
    return Damage(f"holds {rows} rows by its footer, and the table's log says {file.rows}")

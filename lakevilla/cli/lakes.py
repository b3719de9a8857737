"""The lakes that have a name on this machine: a file each, which its owner alone may read."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from typer import get_app_dir

from lakevilla.errors import InvalidOperation

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class NamedLake:
    """A lake, and the options with which commands connect to it; the ``repr`` has no secret."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    profile: str | None = None


def directory() -> Path:
    """Return the directory of the files, where the platform has settings of users."""
    return Path(get_app_dir("lakevilla")) / "lakes"


def lake_names() -> list[str]:
    """Return the names, sorted."""
    try:
        found = os.listdir(directory())
    except FileNotFoundError:
        return []
    return sorted(
        name.removesuffix(_SUFFIX)
        for name in found
        if name.endswith(_SUFFIX) and _NAME.fullmatch(name.removesuffix(_SUFFIX))
    )


def names_a_lake(word: str) -> bool:
    """Return whether a word is the name of a lake."""
    return _NAME.fullmatch(word) is not None and _file(word).is_file()


def named_lake(name: str) -> NamedLake:
    """Return the lake of this name.

    Raises
    ------
    InvalidOperation
        There is none, others than its owner may read or write its file, or the file is of a newer
        release or damaged.
    """
    path = _file(_checked(name))
    try:
        with path.open(encoding="utf-8") as file:
            rights = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if rights & 0o077:
                raise InvalidOperation(
                    f"lake {name}: others may read or write {path}, which may have secrets: "
                    f"`chmod 600 {path}` takes that from them"
                )
            found = json.load(file)
    except FileNotFoundError:
        known = ", ".join(lake_names()) or "none"
        raise InvalidOperation(
            f"no lake has the name {name} (there are: {known}): `lakevilla config {name} ROOT` "
            "gives it to one"
        ) from None
    except ValueError:
        found = None
    return _parsed(name, path, found)


def _parsed(name: str, path: Path, found: object) -> NamedLake:
    """Return a lake as its file has it; refuse fields of a newer release."""
    known = {one.name for one in fields(NamedLake)}
    if isinstance(found, dict) and (newer := sorted(found.keys() - known)):
        raise InvalidOperation(
            f"lake {name}: {path} has {', '.join(newer)}, which this release does not know: "
            "install the one that wrote it, or name the lake again"
        )
    match found:
        case {
            "root": str(root),
            "options": dict(options),
            "profile": str() | None as profile,
        } if all(isinstance(value, str) for value in options.values()):
            return NamedLake(root, options, profile)
    raise InvalidOperation(
        f"lake {name}: {path} is damaged: delete it, and name the lake again by "
        f"`lakevilla config {name} ROOT`"
    )


def give_name(name: str, lake: NamedLake) -> None:
    """Store a lake under a name, in place of the one that had it."""
    path = _file(_checked(name))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(lake), file, indent=1)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def take_name(name: str) -> None:
    """Delete a name, also one whose file can't be read; the lake stays as it is."""
    with contextlib.suppress(FileNotFoundError):
        _file(_checked(name)).unlink()
        return
    named_lake(name)  # raises that there is none


def lake_of(root: str) -> NamedLake:
    """Return the lake that a command's root means: a name's, or the one at this place.

    Raises
    ------
    InvalidOperation
        A directory has the same name here, so that the root could be either.
    """
    if not names_a_lake(root):
        return NamedLake(root)
    found = named_lake(root)
    if Path(root).is_dir():
        raise InvalidOperation(
            f"{root} is the name of a lake, {found.root}, and a directory here: write ./{root} for "
            f"the directory, or {found.root} for the lake"
        )
    return found


def _checked(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise InvalidOperation(
            f"a lake can't have the name {name!r}: letters, digits and . _ - can be in it, at most "
            "100, and it begins with a letter or digit"
        )
    return name


def _file(name: str) -> Path:
    return directory() / f"{name}{_SUFFIX}"

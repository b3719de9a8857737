"""The lake of a command: its root, and the options of its store from ``--option``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lakevilla as lv
from lakevilla.cli.lakes import NamedLake, lake_names, lake_of
from lakevilla.display import shown_text
from lakevilla.errors import InvalidOperation, LakeVillaWarning
from lakevilla.store.location import root_location

if TYPE_CHECKING:
    import boto3

_CATALOG = "catalog."
#: The options that set ``Settings.stores`` and other arguments of ``connect``.
_STORES = "stores"
_OUTSIDE = "files_outside"
_SQL_URIS = "sql_uris"
_FORMAT_LIMIT = "format_limit"


def storage_options(pairs: list[str] | None) -> dict[str, str]:
    """Parse ``KEY=VALUE`` pairs into a dict."""
    options = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not key or not equals:
            # Don't repeat the value in the message: it may be a secret.
            raise InvalidOperation(f"--option {key!r} has no value: write KEY=VALUE")
        options[key] = value
    return options


def session_of(profile: str | None) -> boto3.Session | None:
    """Return a boto3 session for a named profile."""
    if profile is None:
        return None
    try:
        import boto3
        from botocore.exceptions import ProfileNotFound  # type: ignore[import-untyped]
    except ImportError:
        raise InvalidOperation(
            "--profile needs boto3, which is not installed here: `pip install boto3`, or pass the "
            "keys as --option AWS_ACCESS_KEY_ID=... and --option AWS_SECRET_ACCESS_KEY=..."
        ) from None
    try:
        return boto3.Session(profile_name=profile)
    except ProfileNotFound:
        known = ", ".join(boto3.Session().available_profiles) or "none"
        raise InvalidOperation(
            f"--profile {profile!r} is in neither ~/.aws/config nor ~/.aws/credentials (there are: "
            f"{known}): make it with `aws configure --profile NAME`"
        ) from None


@contextmanager
def open_lake(
    root: str,
    pairs: list[str] | None,
    profile: str | None = None,
    left_out: list[str] | None = None,
    *,
    new: bool = False,
    on: str | None = None,
    memory_limit_bytes: int | None = None,
) -> Iterator[lv.Lake[Any]]:
    """Open a command's lake, at the ref named ``on``, and close it when the block ends.

    The root may be the name of a lake, whose options hold unless others are given.

    Unless the lake is ``new``, its directory must exist.

    Messages on parts that the result omits are added to ``left_out``.
    """
    named = lake_of(root)
    given = replace(
        named,
        options={**named.options, **storage_options(pairs)},
        profile=profile or named.profile,
    )

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always", LakeVillaWarning)
        lake = connected(given, _Teller(left_out), memory_limit_bytes)
    _check_directory(lake.root, root, new)
    for warning in noted:
        print(shown_text(str(warning.message)), file=sys.stderr)
    warnings.simplefilter("ignore", LakeVillaWarning)  # the teller prints these warnings
    with lake:
        yield lake if on is None else lake.on(on)


class _Teller:
    """Print on stderr what a result omits, so that users don't take it for complete.

    Parameters
    ----------
    left_out : list of str, optional
        Gets the messages, too.
    """

    def __init__(self, left_out: list[str] | None) -> None:
        self._left_out = left_out

    def __call__(self, event: lv.Event) -> None:
        if event.kind == "left_out":
            print(shown_text(event.message), file=sys.stderr)
            if self._left_out is not None:
                self._left_out.append(event.message)


def connected(
    named: NamedLake,
    on_event: Callable[[lv.Event], None] | None = None,
    memory_limit_bytes: int | None = None,
) -> lv.Lake[Any]:
    """Connect to a lake by its options; this sends no request.

    Raises
    ------
    InvalidOperation
        There is no such option, or its value is not understood.
    """
    options = dict(named.options)
    stores = tuple(_listed(options.pop(_STORES, "")))
    catalogs: dict[str, dict[str, str]] = {}
    for key in [key for key in options if key.startswith(_CATALOG)]:
        name, _, wanted = key.removeprefix(_CATALOG).partition(".")
        if not (name and wanted):
            raise InvalidOperation(
                f"--option {key!r} is not understood: write catalog.NAME.PROPERTY=VALUE"
            )
        catalogs.setdefault(name, {})[wanted] = options.pop(key)
    outside = options.pop(_OUTSIDE, "")
    sql_uris = _flag(_SQL_URIS, options.pop(_SQL_URIS, "false"))
    format_limit = _number(_FORMAT_LIMIT, options.pop(_FORMAT_LIMIT, "0"))
    settings = lv.Settings(stores=stores, sql_uris=sql_uris, format_limit=format_limit)
    if memory_limit_bytes is not None:
        settings = replace(settings, memory_limit_bytes=memory_limit_bytes)
    return lv.connect(
        named.root,
        storage_options=options or None,
        boto3_session=session_of(named.profile),
        on_event=on_event,
        progress=True,
        catalogs=catalogs,
        files_outside=_listed(outside),
        settings=settings,
    )


def _listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidOperation(f"--option {name} is true or false, not {text!r}")
    return text.lower() == "true"


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidOperation(f"--option {name} is a whole number, not {text!r}")
    return int(text)


def _check_directory(root: str, given: str, new: bool) -> None:
    """Refuse a local root that is not a directory; ``given`` is its spelling, or a lake's name."""
    place = root_location(root)
    path = Path(f"/{place.path}")
    if place.scheme != "file" or path.is_dir():
        return
    if not new:
        known = lake_names() if "/" not in given else []
        near = get_close_matches(given, known, 1)
        meant = f"did you mean the lake {near[0]}? " if near else ""
        listed = ", or its name, which `lakevilla config` lists" if known else ""
        raise InvalidOperation(
            f"there is no directory {path}: {meant}check the root{listed}; `mkdir` makes one for a "
            "new lake, and `lakevilla create` makes it with its first table"
        )

"""Lakes by SQLAlchemy's URLs: ``lakevilla:///path``, ``lakevilla+s3://bucket/prefix``."""

from __future__ import annotations

from typing import Any

from sqlalchemy import exc
from sqlalchemy.engine import URL

from lakevilla.engines.statistics import LIMITS

#: The word after ``+`` that names a driver, and not a store.
_DRIVER = "dbapi"


def connect_arguments(url: URL) -> dict[str, Any]:
    """Return the arguments for ``lakevilla.dbapi.connect``; the URL's query has options of the
    store.

    Raises
    ------
    ArgumentError
        The URL names no lake, or has a password.
    """
    if url.password is not None:
        raise exc.ArgumentError(
            "a lake's URL has no password: pass credentials by "
            'connect_args={"storage_options": {...}}, or by the environment'
        )
    options: dict[str, Any] = {}
    root = _root(url)
    if root is not None:
        options["lake"] = root
    storage: dict[str, object] = {}
    for name, value in url.query.items():
        if name == "files_outside":
            options["files_outside"] = (value,) if isinstance(value, str) else value
        elif not isinstance(value, str):
            raise exc.ArgumentError(f"{name} is twice in the URL of the lake: give it once")
        elif name == "isolation":
            options["isolation"] = value
        elif name == "autocommit":
            options["autocommit"] = _flag(value)
        elif name in LIMITS:
            options[name] = _number(name, value)
        else:
            storage[name] = value
    if storage:
        options["storage_options"] = storage
    return options


def _root(url: URL) -> str | None:
    scheme = url.drivername.partition("+")[2]
    path = url.database or ""
    if scheme in ("", _DRIVER):
        if url.host:
            raise exc.ArgumentError(
                f"lakevilla://{url.host}/... names a host, and a lake has none: write "
                "lakevilla:///path for a directory, or lakevilla+s3://bucket/prefix"
            )
        return path or None  # without a path, connect_args must pass an open lake
    if scheme == "file":
        return f"file:///{path}"
    if not url.host:
        raise exc.ArgumentError(
            f"{url.drivername}:// names no bucket: write {url.drivername}://bucket/prefix"
        )
    host = f"{url.username}@{url.host}" if url.username else url.host
    return f"{scheme}://{host}/{path}".rstrip("/")


def _number(name: str, value: str) -> int | float:
    try:
        return float(value) if name == "timeout_seconds" else int(value)
    except ValueError:
        raise exc.ArgumentError(f"{name} is a number, not {value!r}") from None


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise exc.ArgumentError(f"autocommit is true or false, not {value!r}")
    return value.lower() == "true"

"""Where DuckDB finds a table's files: paths on this machine, or our store as a file system."""

from __future__ import annotations

import datetime
import re
import threading
from typing import Any
from urllib.parse import quote, unquote

import fsspec  # type: ignore[import-untyped]
import pyarrow as pa

from lakevilla.engines.base import DataAccess

_PROTOCOL = "lakevilla"
_URL = re.compile(rf"(?:{_PROTOCOL}://)?(?P<key>.*)\?size=(?P<size>\d+)")
_GLOB = re.compile(r"[*?\[]")
_LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


def readable_path(data: DataAccess, key: str, size: int) -> str:
    """The argument of ``read_parquet`` for a data file.

    The size, known from the log, travels in the URL: opening a remote file
    costs no request.
    """
    local = data.local_path(key)
    if local is None:
        return f"{_PROTOCOL}://{quote(key, safe='/')}?size={size}"
    # read_parquet takes every path for a pattern; a bracket makes one literal.
    return _GLOB.sub(lambda match: f"[{match.group()}]", local)


def literal_path(path: str) -> str:
    """The path that ``readable_path`` made a pattern of."""
    return re.sub(r"\[([*?\[])\]", r"\1", path)


class StoreFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Our store for DuckDB: read-only, files that never change.

    DuckDB's Parquet reader fetches the column chunks that a query needs by
    merged ranges, so remote tables get the projection and filter push-down of
    local ones.
    """

    protocol = _PROTOCOL
    cachable = False

    def __init__(self, data: DataAccess) -> None:
        super().__init__()
        self._data = data

    def open(self, path: str, mode: str = "rb", **options: Any) -> _File:
        key, size = _parse(path)
        return _File(self._data.open_input(key, size), size)

    def glob(self, path: str, **options: Any) -> list[str]:
        return [path]

    def exists(self, path: str, **options: Any) -> bool:
        return True

    def isfile(self, path: str) -> bool:
        return True

    def size(self, path: str) -> int:
        return _parse(path)[1]

    def modified(self, path: str) -> datetime.datetime:
        # Data files are immutable: a constant lets DuckDB's block cache work.
        return _LONG_AGO


class _File:
    """A file whose position belongs to the thread that set it.

    DuckDB seeks and reads in two calls; another thread's seek must not come
    between them.
    """

    def __init__(self, source: pa.NativeFile, size: int) -> None:
        self._source, self.size = source, size
        self._lock = threading.Lock()
        self._local = threading.local()

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self.tell(), self.size)[whence]
        self._local.position = base + offset
        return base + offset

    def tell(self) -> int:
        return getattr(self._local, "position", 0)

    def read(self, length: int = -1) -> bytes:
        start = self.tell()
        length = self.size - start if length < 0 else min(length, self.size - start)
        with self._lock:
            self._source.seek(start)
            body = bytes(self._source.read(length))
        self._local.position = start + len(body)
        return body

    def close(self) -> None:
        self._source.close()


def _parse(path: str) -> tuple[str, int]:
    match = _URL.fullmatch(path)
    if match is None:
        raise FileNotFoundError(path)
    return unquote(match["key"]), int(match["size"])

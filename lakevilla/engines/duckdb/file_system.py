"""Names of a table's files for DuckDB: local paths, or the lake's store as a file system.

A statement of a user reads files by names that can't be guessed (``GivenFiles``), wherever the lake
is stored. A file that was not given to it can't be named, and nothing can be written.
"""

from __future__ import annotations

import datetime
import re
import threading
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

import fsspec  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq

from lakevilla.engines.base import DataAccess
from lakevilla.errors import CorruptObject, StoreError

_PROTOCOL = "lakevilla"
#: The only URLs that a database may reach whose access is closed otherwise.
STORE_URL = f"{_PROTOCOL}://"
_URL = re.compile(rf"(?:{STORE_URL})?(?P<key>.*)\?size=(?P<size>\d+)")
_IN_TEXT = re.compile(rf"{STORE_URL}(?P<key>[^?'\"\s]*)\?size=\d+(?:&as=[0-9a-f]+)?")
_GLOB = re.compile(r"[*?\[]")
_LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


def readable_path(data: DataAccess, key: str, size: int) -> str:
    """Return the argument of ``read_parquet`` for a data file.

    The URL contains the size, known from the log: opening a remote file costs no request.
    """
    local = data.local_path(key)
    if local is None:
        return f"{_PROTOCOL}://{quote(key, safe='/')}?size={size}"
    return literally(local)


def literally(path: str) -> str:
    """Return a path on this machine, wildcards in brackets: ``read_parquet`` takes patterns."""
    # https://github.com/duckdb/duckdb/issues/4699
    return _GLOB.sub(lambda match: f"[{match.group()}]", path)


@cache
def without_rows() -> str:
    """Return the argument of ``read_parquet`` for a file of no table, which has no rows.

    Its key is empty, and it is read from memory.
    """
    return f"{STORE_URL}?size={len(_no_rows())}"


@cache
def _no_rows() -> bytes:
    sink = pa.BufferOutputStream()
    # An id that no column of a table has: where columns are found by id, each needs one.
    field = pa.field("__lakevilla_none", pa.bool_(), metadata={b"PARQUET:field_id": b"2147483647"})
    pq.write_table(pa.Table.from_batches([], pa.schema([field])), sink, store_schema=False)
    return bytes(sink.getvalue())


def with_keys(text: str) -> str:
    """Return a text of DuckDB's, with the keys of data files in the place of its names for them."""
    return _IN_TEXT.sub(lambda match: unquote(match["key"]), text)


def literal_path(path: str) -> str:
    """Return the path that ``readable_path`` made a pattern of."""
    return re.sub(r"\[([*?\[])\]", r"\1", path)


class StoreFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """The lake's store as a file system for DuckDB: read-only, with files that never change.

    DuckDB's Parquet reader fetches the column chunks that a query needs by merged ranges, so remote
    tables get the projection and filter push-down of local ones.
    """

    protocol = _PROTOCOL
    cachable = False

    def __init__(self, data: DataAccess, former: StoreFileSystem | None = None) -> None:
        super().__init__()
        self._data = data
        #: The hashes of the names of the files that were opened here, and in ``former``.
        self._opened: set[int] = set()
        self._opened_before: set[int] = set() if former is None else former._opened
        #: The number of files that were opened here and not in ``former``.
        self.fresh = 0

    def open(self, path: str, mode: str = "rb", **options: Any) -> _File:
        if mode != "rb":
            raise PermissionError(f"{path}: data files are only read here")
        key, size = _parse(path)
        self._note(hash(path))
        source = self._data.open_input(key, size) if key else pa.BufferReader(_no_rows())
        return _File(source, size)

    def _note(self, name: int) -> None:
        if name not in self._opened:
            self._opened.add(name)
            self.fresh += name not in self._opened_before

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


class GivenFile(str):
    """The name of one data file; the file can be opened by it while this object exists."""

    __slots__ = ("__weakref__", "copy", "key", "size")
    key: str
    size: int
    copy: str | None


@cache
def _file_without_rows() -> GivenFile:
    file = GivenFile(without_rows())
    file.key, file.size, file.copy = "", len(_no_rows()), None
    return file


class GivenFiles(StoreFileSystem):
    """Files that a statement may read, each by a name that can't be guessed.

    Nothing is listed and nothing is written. A name belongs to a file's key, its size and the time
    that the table's log has for it, and is never used for another file. So the content that a cache
    has under a name is the content of the file. That holds even if a client that breaks the
    formats' rule has written other bytes under the same key and put those into the log.
    """

    def __init__(self, data: DataAccess, nonce: Callable[[], str]) -> None:
        super().__init__(data)
        self._nonce = nonce
        #: The number of names that were made.
        self.made = 0
        self._files: WeakValueDictionary[tuple[str, int, int], GivenFile] = WeakValueDictionary()
        self._names: WeakValueDictionary[str, GivenFile] = WeakValueDictionary()

    def give(self, key: str, size: int, modified: int) -> GivenFile:
        """Return the file's name. Two threads may get two names for one file: each is valid."""
        file = self._files.get((key, size, modified))
        if file is None:
            file = self.give_copy(key, size)
            self._files[key, size, modified] = file
        return file

    def give_copy(self, key: str, size: int, copy: str | None = None) -> GivenFile:
        """Return a new name of the file; with ``copy``, it names the copy at that path."""
        file = GivenFile(f"{STORE_URL}{quote(key, safe='/')}?size={size}&as={self._nonce()}")
        file.key, file.size, file.copy = key, size, copy
        self.made += 1
        self._names[str(file)] = file
        return file

    def open(self, path: str, mode: str = "rb", **options: Any) -> _File:
        file = self._named(path)
        if file is None or mode != "rb":
            raise PermissionError(f"{with_keys(path)}: there is no such data file to read here")
        if not file.key:
            return _File(pa.BufferReader(_no_rows()), file.size)
        if file.copy is not None:
            return _File(pa.OSFile(file.copy), file.size)
        try:
            return _File(self._data.open_input(file.key, file.size), file.size)
        except CorruptObject:
            raise StoreError(
                f"data file {file.key} is missing; check that it was not vacuumed, then try again"
            ) from None

    def glob(self, path: str, **options: Any) -> list[str]:
        return [path] if self._named(path) is not None else []

    def exists(self, path: str, **options: Any) -> bool:
        return self._named(path) is not None

    def isfile(self, path: str) -> bool:
        return self._named(path) is not None

    def size(self, path: str) -> int:
        file = self._named(path)
        if file is None:
            raise FileNotFoundError(with_keys(path))
        return file.size

    def _named(self, path: str) -> GivenFile | None:
        name = path if path.startswith(STORE_URL) else STORE_URL + path
        # Every statement may name the file without rows: there is nothing in it.
        return _file_without_rows() if name == without_rows() else self._names.get(name)


class _File:
    """A file whose position belongs to the thread that set it.

    DuckDB seeks and reads in two calls; another thread's seek must not change the position between
    them.
    """

    def __init__(self, source: pa.NativeFile, size: int) -> None:
        self._source, self.size = source, size
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
        body = bytes(self._source.read_at(length, start))
        self._local.position = start + len(body)
        return body

    def close(self) -> None:
        self._source.close()


def _parse(path: str) -> tuple[str, int]:
    match = _URL.fullmatch(path)
    if match is None:
        raise FileNotFoundError(path)
    return unquote(match["key"]), int(match["size"])

"""Random access to data files, for engines that read them in parts."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from stat import S_ISDIR, S_ISREG

import pyarrow as pa

from lakevilla.errors import CorruptObject, StoreError
from lakevilla.forked import lock
from lakevilla.store.base import Found, GetOutcome, Missing
from lakevilla.store.cached import SMALL_FILE_BYTES
from lakevilla.store.content import HashedFile, compare_all, compare_local, damaged
from lakevilla.store.effects import get, get_immutable, stat
from lakevilla.store.location import is_external
from lakevilla.store.runner import Runner
from lakevilla.store.scratch import on_scratch


@contextmanager
def kept_in(held: dict[str, bytes], bodies: Mapping[str, bytes]) -> Iterator[None]:
    """Return a context in which ``held`` has these files too, by key.

    What it had before stays there after the context.
    """
    added = bodies.keys() - held.keys()
    held.update(bodies)
    try:
        yield
    finally:
        for key in added:
            held.pop(key, None)


class DataFiles:
    """The access to data files that an engine needs besides effects.

    Parameters
    ----------
    runner : Runner
        Every ranged read goes through it, so it is retried and counted.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._held: dict[str, bytes] = {}

    @contextmanager
    def holding(self, bodies: Mapping[str, bytes]) -> Iterator[None]:
        """Return a context in which these files, by key, are read from memory.

        Two threads may hold the same file: the bytes are the same, and when one thread releases it
        the other reads it from the store. Of two blocks, one within the other, the outer one holds
        it to its end.
        """
        with kept_in(self._held, bodies):
            yield

    @contextmanager
    def compared(self, files: Sequence[HashedFile], directory: str) -> Iterator[list[str]]:
        """Return a context in which these files are on this machine, each compared with its hash.

        Files of a local lake stay in their place. Other files are copied into ``directory``, so
        that the bytes read are the bytes compared: a second request might return other bytes.

        Raises
        ------
        CorruptObject
            A file is not what was written, or is gone. The block does not begin then.
        """
        paths = [self.local_path(file.key) for file in files]
        copies: list[str] = []
        try:
            for file, path in zip(files, paths, strict=True):
                if path is not None and (wrong := compare_local(file, path)) is not None:
                    raise damaged(file, wrong)
            away = [file for file, path in zip(files, paths, strict=True) if path is None]
            with on_scratch(directory):
                for _ in away:
                    handle, copy = tempfile.mkstemp(".parquet", "compared-", directory)
                    os.close(handle)
                    copies.append(copy)
                self._copy(away, copies)
            made = iter(copies)
            yield [next(made) if path is None else path for path in paths]
        finally:
            for copy in copies:
                os.unlink(copy)

    def _copy(self, files: Sequence[HashedFile], copies: Sequence[str]) -> None:
        """Write each file to its place on this machine, and compare it."""
        places = dict(zip(files, copies, strict=True))

        def take(file: HashedFile, part: bytes) -> None:
            with open(places[file], "ab") as output:
                output.write(part)

        found = self._runner.run(compare_all(files, take))
        for file, wrong in zip(files, found, strict=True):
            if wrong is not None:
                raise damaged(file, wrong)

    def admit(self, keys: Iterable[str], table: str) -> None:
        """Refuse files that the lake does not read: in no table of the lake, and not allowed.

        Raises
        ------
        InvalidOperation
        """
        for key in keys:
            if is_external(key):
                self._runner.admit(key, table)

    def local_path(self, key: str) -> str | None:
        """Return the file's path where the lake is a local directory, else None.

        Raises
        ------
        CorruptObject
            The path is a pipe or the like: opening it would wait for ever.
        """
        self._runner.admit(key)
        path = self._runner.store.local_path(key)
        if path is not None and _is_irregular(path):
            raise CorruptObject(
                f"data file {key!r} is no regular file, but a pipe, a socket or a device: remove "
                "it, and restore the file",
                key=key,
            )
        return path

    def open_input(self, key: str, size: int | None = None) -> pa.NativeFile:
        """Open a data file for pyarrow; reads fetch only the requested byte ranges.

        Parameters
        ----------
        key : str
            The object.
        size : int, optional
            Its size where it is known (a table's log has it), which saves a request.

        Raises
        ------
        CorruptObject
            The object does not exist.
        StoreError
            A local file can't be opened.
        """
        body = self._held.get(key)
        if body is not None:
            return pa.BufferReader(body)
        path = self.local_path(key)
        if path is not None:
            try:
                return pa.OSFile(path)
            except FileNotFoundError:
                raise _missing(key) from None
            except OSError as error:  # the name is too long, or this user may not read the file
                why = os.strerror(error.errno) if error.errno else "it is no file"
                raise StoreError(
                    f"data file {key!r} can't be opened ({why}): correct "
                    "its access rights, or have its writer name it by another path"
                ) from None
        if size is None:
            info = self._runner.run(stat(key))
            if isinstance(info, Missing):
                raise _missing(key)
            size = info.size
        return _Ranges(_RangeReader(self._runner, key, size))


def _is_irregular(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (S_ISREG(mode) or S_ISDIR(mode))


def _missing(key: str) -> CorruptObject:
    return CorruptObject(
        f"data file {key!r} is missing although a table names it; restore it, or run VACUUM with "
        "a longer retention from now on",
        key=key,
    )


class _RangeReader(io.RawIOBase):
    """A read-only file over ranged gets. Data files never change, so parts fit together.

    A small file is read whole when its first bytes are, by one request: its footer and its columns
    are no fewer than two.
    """

    def __init__(self, runner: Runner, key: str, size: int) -> None:
        self._runner = runner
        self._key = key
        self._size = size
        self._position = 0
        self._body: bytes | None = None
        self._reading = lock()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else self._position + size
        body = self.between(self._position, end)
        self._position += len(body)
        return body

    def between(self, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` to ``end``; any thread may ask, at any time."""
        end = min(self._size, end)
        if end <= start:
            return b""
        if self._size > SMALL_FILE_BYTES:
            part = self._runner.run(get(self._key, byte_range=(start, end)))
            return self._part(part, end - start)
        with self._reading:
            if self._body is None:
                whole = get_immutable(self._key, self._size)
                self._body = self._part(self._runner.run(whole), self._size)
        return self._body[start:end]

    def _part(self, found: GetOutcome, length: int) -> bytes:
        """Return the bytes that were requested.

        Raises
        ------
        CorruptObject
            The file is missing, or has fewer bytes than its table says.
        """
        if not isinstance(found, Found):
            raise _missing(self._key)
        if len(found.body) < length:
            raise CorruptObject(
                f"data file {self._key!r} has {found.size} bytes, where the table says "
                f"{self._size}: restore it",
                key=self._key,
            )
        return found.body

    def readall(self) -> bytes:
        return self.read()


class _Ranges(pa.PythonFile):  # type: ignore[misc]
    """A file of which several threads read ranges at the same time, each without a copy.

    pyarrow's own ``read_at`` of a Python file lets one thread at a time request a range.
    """

    def __init__(self, reader: _RangeReader) -> None:
        self._reader = reader

    def read_at(self, nbytes: int, offset: int) -> bytes:
        return self._reader.between(offset, offset + nbytes)

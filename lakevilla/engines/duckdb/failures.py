"""DuckDB's errors as LakeVilla's: the text is kept, the traceback is not.

Rows pass between Python and DuckDB in both directions, and each side keeps only the text of the
other's errors. A ``Tap`` stores the error of a Python source; ``translated`` raises this error
rather than DuckDB's report of it. Ctrl-C is such an error too, whichever side it stops.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import pyarrow as pa

from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.file_system import with_keys
from lakevilla.engines.statistics import running
from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    Reason,
    StoreError,
    UnsupportedTableFeature,
)
from lakevilla.store.backends.local import refusal_in
from lakevilla.store.scratch import scratch_refusal, scratch_root

#: The beginning of the message of an error that a guard raises inside DuckDB.
RULE_MARK = "lakevilla broken rule: "

_PREFIX = re.compile(r"^(?P<kind>[A-Z][A-Za-z ]* Error): ", re.DOTALL)
_FILE = re.compile(r"""(?P<quote>['"])(?P<path>[^'"]+)(?P=quote)""")
# Ctrl-C within Python code that DuckDB has called: LakeVilla's file system, or a source of rows.
_INTERRUPTED = re.compile(
    r"(?:[A-Z][A-Za-z ]* Error: )?"
    r"(?:KeyboardInterrupt: .*\n\nAt:\n|[^\n]* Python exception: .*\nKeyboardInterrupt\b)",
    re.DOTALL,
)
# An error of LakeVilla's file system while DuckDB reads one of its files.
_OURS = re.compile(
    r"(?:[A-Z][A-Za-z ]* Error: )?(?P<kind>StoreError|CorruptObject): (?P<message>.*?)\n\nAt:\n",
    re.DOTALL,
)
# An error of Python code that DuckDB 2 has called: the stack precedes it, the statement follows.
_TRACEBACK = re.compile(
    r"(?P<kind>(?:[A-Z][A-Za-z ]* Error: )?)Traceback \(most recent call last\):\n"
    r"(?P<stack>(?:  [^\n]*\n)+)(?P<raised>.*?)(?:\n\nLINE \d+: .*)?\Z",
    re.DOTALL,
)
# A query can read no files but those of its tables: DuckDB takes a missing file for a directory.
# https://github.com/duckdb/duckdb/issues/20981 (it reads directories)
_REMOVED = re.compile(
    r"""^Permission Error: Cannot access file "(?P<path>[^"]+)/\*\*/\*\.parquet" """
)
_MISSING = re.compile(r"""No files found that match the pattern "(?P<path>[^"]+)\"""")
#: The end of a message about a file that could not be made or written, in the system's words.
_UNWRITTEN = re.compile(r"""(?P<quote>['"])(?P<path>[^'"]+)(?P=quote): (?P<why>[^:\n]+)""")
#: DuckDB's message about rows that it could not keep on the disk while memory was short.
_UNSPILLED = "max_temp_directory_size"
#: Errors of DuckDB that the system causes.
_OF_SYSTEM = ("IO Error", "Out of Memory Error", "FATAL Error")
#: A file in a process's own directory (``scratch_directory``).
_SCRATCH = re.compile(r"^(?P<directory>.*/lakevilla-[^/]+)/(database-\d+/)?[^/]+$")
_CODEC = re.compile(r"""Unsupported compression codec "(?P<codec>[^"]+)\"""")
#: Messages of DuckDB about bytes that are no text, in a column that is text in the table.
_NO_TEXT = ("Failure in decode", "Invalid string encoding")
_CORRUPT = ("too small to be", "no magic bytes", "corrupt", "footer", "thrift", "invalid page")
#: Messages of DuckDB and pyarrow about data that they have not learnt to decode.
_LACKING = re.compile(
    r"\bnot (?:yet )?(?:implemented|supported)\b|\bunimplemented\b|\bunsupported\b"
    r"|encoding is only supported for",
    re.IGNORECASE,
)
#: Messages of DuckDB about bytes that are no Parquet.
_UNDECODABLE = re.compile(
    r"parquet|thrift|TProtocol|TTransport|snappy|zstd|gzip|brotli|lz4|decompress|out of buffer"
    r"|failed to read|page|dictionary|encoding|RLE|varint|delta binary|offset|not enough bytes",
    re.IGNORECASE,
)
#: Errors of DuckDB that the values of rows cause.
_OF_VALUES = ("Conversion Error", "Out of Range Error")
#: Advice in LakeVilla's own messages, which are raised inside DuckDB.
_ADVISED = re.compile(r": (?:correct the value, or leave|use nullif\(divisor)")
#: DuckDB's message for text that it casts to a UUID, or to a HUGEINT: it names both alike.
_AS_NUMBER = re.compile(r"could not convert string .* to INT128", re.IGNORECASE)
#: Hints of DuckDB to settings of its own, which a session does not have here.
_OF_SETTINGS = re.compile(r'use "?set ', re.IGNORECASE)
#: The attribute of an error that a damaged data file may have caused.
_DOUBT = "_in_doubt"


class Tap:
    """Batches that DuckDB pulls; the object stores the error that ended them."""

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        self.error: BaseException | None = None
        self.reader = pa.RecordBatchReader.from_batches(schema, self._pull(batches))

    def _pull(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except BaseException as error:
            self.error = error
            raise


@contextmanager
def translated(table: str | None, taps: Iterable[Tap] = ()) -> Iterator[None]:
    """Raise LakeVilla's errors instead of those that DuckDB, or its stream of rows, raises in the
    block.
    """
    try:
        yield
    except LakeVillaError:
        raise
    except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:
        for tap in taps:
            if tap.error is not None:
                raise tap.error from None
        interruption = _interruption(error)
        if interruption is not None:
            raise interruption from None
        text = with_keys(said(error))
        ours = _OURS.match(text)
        if ours is not None:
            kind = StoreError if ours["kind"] == "StoreError" else CorruptObject
            raise kind(ours["message"], table=table) from None
        # A stream of DuckDB's raises OSError with DuckDB's text; other errors of these types come
        # from elsewhere, and are raised unchanged.
        match = _PREFIX.match(text)
        if match is None and not isinstance(error, duckdb.Error):
            raise
        explained = _explain(text, match, table)
        if not _is_known(text, explained):
            undecodable = is_no_text(text) or _UNDECODABLE.search(text)
            doubt = "decoding" if undecodable else "values"
            setattr(explained, _DOUBT, doubt)
        raise explained from None


def said(error: Exception) -> str:
    """Return an error's text; for Python code called by DuckDB, in the form of DuckDB 1."""
    text = str(error)
    match = _TRACEBACK.match(text)
    if match is None:
        return text
    return f"{match['kind']}{match['raised']}\n\nAt:\n{match['stack']}"


def _is_known(text: str, explained: LakeVillaError) -> bool:
    """Return whether the text names the cause: a rule of the table, a codec, a missing file."""
    if is_no_text(text):
        return False  # the file and the column are not known
    if RULE_MARK in text or isinstance(explained, UnsupportedTableFeature) or of_disk(text):
        return True
    return bool(_REMOVED.search(text) or _MISSING.search(text))


def is_no_text(text: str) -> bool:
    """Return whether DuckDB has read bytes that are no text, according to its message."""
    return any(sign in text for sign in _NO_TEXT)


def is_lacking(text: str) -> bool:
    """Return whether a reader of Parquet lacks a feature of a file, by its message alone."""
    return _LACKING.search(text) is not None


def of_disk(text: str) -> bool:
    """Return whether a disk took no write, by the message alone: no file that is read causes it.

    Other messages of DuckDB repeat values of rows, which may have the system's words.
    """
    match = _PREFIX.match(text)
    if match is not None and match["kind"] not in _OF_SYSTEM:
        return False
    return _UNSPILLED in text or refusal_in(text) is not None


def doubt_of(error: LakeVillaError) -> Literal["decoding", "values"] | None:
    """Return whether a damaged file may be the cause, by DuckDB's message or its values alone."""
    found: Literal["decoding", "values"] | None = getattr(error, _DOUBT, None)
    return found


def _interruption(error: Exception) -> BaseException | None:
    """Return the error of a signal raised while DuckDB ran, or of a time limit; None if neither."""
    if type(error) is RuntimeError and str(error) == "Query interrupted":
        # DuckDB polls for signals; the error that their handler has raised is the cause.
        return error.__cause__ or KeyboardInterrupt()
    if "INTERRUPT Error" in str(error) and (statement := running()) is not None:
        return statement.expiry()
    return KeyboardInterrupt() if _INTERRUPTED.match(said(error)) else None


def _explain(text: str, match: re.Match[str] | None, table: str | None) -> LakeVillaError:
    place = "" if table is None else f"table {table}: "
    _, broken, rule = text.partition(RULE_MARK)
    if broken:
        return InvalidOperation(
            f"{place}{rule.strip()}; correct the row and write again",
            reason="constraint",
            table=table,
        )
    kind = "" if match is None else match["kind"]
    return (
        _of_a_disk(text, place, table)
        or _of_a_file(text, place, table)
        or _of_a_kind(kind, place + _message(text, kind), text, table)
    )


def _message(text: str, kind: str) -> str:
    """Return DuckDB's message, without the kind and the excerpt of the statement."""
    message = text[len(kind) + 2 :] if kind else text
    lines = [line.strip() for line in message.split("\n\nLINE ")[0].splitlines()]
    return "; ".join(
        _lower(line.rstrip("!.?")) for line in lines if line and not _OF_SETTINGS.match(line)
    )


def _lower(line: str) -> str:
    # "SELECT clause ..." stays unchanged
    return line if line[1:2].isupper() else line[:1].lower() + line[1:]


def _of_a_disk(text: str, place: str, table: str | None) -> StoreError | None:
    """Return the error for a file that a full disk, or one that is read-only, did not take."""
    if not of_disk(text):
        return None
    why = refusal_in(text) or "it is nearly full"
    named = _UNWRITTEN.search(text)
    path = "" if named is None else named["path"]
    scratch = _SCRATCH.match(path)
    if scratch is not None or _UNSPILLED in text:
        directory = scratch_root() if scratch is None else scratch["directory"]
        message = scratch_refusal(directory, why)
    else:
        message = f"{path or 'a file'} could not be written: {why}"
    return StoreError(place + message, permanent=True, table=table)


def _of_a_file(text: str, place: str, table: str | None) -> LakeVillaError | None:
    """Return the error for a missing or undecodable data file, if DuckDB's text alone shows one."""
    missing = _REMOVED.search(text) or _MISSING.search(text)
    if missing is not None:
        return StoreError(
            f"{place}data file {missing['path']} is missing; check that it was not vacuumed, then "
            "try again",
            table=table,
        )
    codec = _CODEC.search(text)
    if codec is not None:
        file = _FILE.search(text)
        name = "a data file" if file is None else f"data file {file['path']}"
        # LZ4 is Hadoop's framing of it, which the Parquet format gave up for LZ4_RAW.
        return UnsupportedTableFeature(
            f"{place}{name} is compressed by {codec['codec']}, which can't be read here: rewrite "
            "it by snappy, zstd or LZ4_RAW with the client that wrote it",
            table=table,
        )
    if is_no_text(text):
        return UnsupportedTableFeature(
            f"{place}a column of text holds bytes that are not UTF-8, which LakeVilla does not "
            "read: write it again with a client that reads it, as a binary column or as UTF-8",
            table=table,
        )
    return None


def _of_a_kind(kind: str, message: str, text: str, table: str | None) -> LakeVillaError:
    """Return an error by the kind of DuckDB's error, and by signs of damage."""
    lower = text.lower()
    if kind == "Out of Memory Error":
        return InvalidOperation(
            f"{message}; raise memory_limit_bytes in the settings or narrow the statement",
            table=table,
        )
    if ("parquet" in lower or "thrift" in lower) and any(sign in lower for sign in _CORRUPT):
        file = _FILE.search(text)
        return CorruptObject(
            f"{message}; restore the file from a backup",
            key=None if file is None else file["path"],
            table=table,
        )
    if kind in ("IO Error", "HTTP Error"):
        return StoreError(
            f"{message}; check that the file was not vacuumed, then try again", table=table
        )
    advice = "" if _ADVISED.search(message) else "; correct the statement or the data"
    if _AS_NUMBER.search(message):
        advice += "; of a UUID with text, pass str(it)"
    reason: Reason | None = "value" if kind in _OF_VALUES else None
    return InvalidOperation(f"{message}{advice}", reason=reason, table=table)

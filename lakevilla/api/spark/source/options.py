"""The options of a reader, and their meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches

from lakevilla.api.history import milliseconds
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.refs import MAIN
from lakevilla.settings import shown
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.sql.expressions.tree import Expr

__all__ = ["Limits", "ReadOptions", "VersionOptions", "asks_for_versions", "without_root"]

_KNOWN = (
    "lake",
    "table",
    "ref",
    "version",
    "timestamp",
    "columns",
    "where",
    "partitions",
    "pushdown",
    "startingVersion",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "filesOutside",
    "what",
)
#: Options of Delta's own reader, in lower case, with what to write instead.
_OF_DELTA = {
    "versionasof": "option version is one of the whole lake, and "
    "lake.table(name).read(version=...) reads one of the table's own log; ",
    "timestampasof": "write timestamp; ",
    "readchangefeed": "startingVersion alone requests changes; ",
    "readchangedata": "startingVersion alone requests changes; ",
}
#: The options that are allowed with what=versions.
_KNOWN_OF_VERSIONS = ("lake", "what", "ref", "tables", "startingVersion", "version")
#: The upper limit of ``partitions``; a bin has at least 4 MiB anyway.
_MOST_PARTITIONS = 1_000_000
#: Spark's spelling of the present time, with parentheses, which LakeVilla's language lacks.
_SPARKS_NOW = re.compile(r"(current_(?:timestamp|date))\s*\(\s*\)", re.IGNORECASE)
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
#: The suffixes of sizes in bytes in Spark's spelling, such as 512m and 1g, as powers of two.
_SIZES = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one batch, which has at least one part, however large that is."""

    files: int | None = None
    bytes: int | None = None

    def __bool__(self) -> bool:
        return self.files is not None or self.bytes is not None

    def hold(self, files: int, size: int) -> bool:
        return (self.files is None or files <= self.files) and (
            self.bytes is None or size <= self.bytes
        )


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The request of a reader.

    Attributes
    ----------
    lake, table : str
    ref : str or None
        The name of a ref; None for the lake itself.
    version : int or None
    timestamp : datetime or None
        Aware.
    columns : list of str or None
    where : str or None
        A predicate in LakeVilla's language.
    partitions : int or None
        The number of tasks that run at a time, for which the table is cut; None: the session's.
    pushdown : bool or None
        Whether to take the filters that Spark pushes; None: only if Spark plans each use of a
        frame.
    starting_version : int or None
        The first global version whose changes are requested, instead of rows.
    limits : Limits
        The limits of one batch of a stream of changes.
    files_outside : tuple of str
        Directories elsewhere in which files that the table names may be read.
    """

    lake: str
    table: str
    ref: str | None
    version: int | None
    timestamp: datetime | None
    columns: list[str] | None
    where: str | None
    partitions: int | None
    pushdown: bool | None
    starting_version: int | None
    limits: Limits = Limits()
    files_outside: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, str], roots: Sequence[str] = ()) -> ReadOptions:
        """Parse the options that Spark passes: names in any letter case, ``load``'s table as
        ``path``.

        ``roots`` are those of the session's lakes, for a message.

        Raises
        ------
        InvalidOperation
            An option is missing, unknown, or not valid. The message does not repeat the value of an
            unknown option, which may be a secret key.
        """
        given = {name.lower(): value for name, value in options.items()}
        table = _one_table(given.pop("path", None), given.get("table"))
        unknown = sorted(given.keys() - {name.lower() for name in _KNOWN})
        if unknown:
            raise InvalidOperation(
                f"the data source lakevilla has no option {', '.join(unknown)}: "
                f"{_meant(unknown[0], _KNOWN)}it has {', '.join(_KNOWN)}; credentials are given "
                "to lakevilla.connect(..., spark=)"
            )
        if not given.get("lake"):
            raise without_root("load", table, roots)
        if table is None:
            raise InvalidOperation(
                "the data source lakevilla needs a table's name: .load('sales/orders')"
            )
        version, timestamp = _number(given, "version"), _timestamp(given.get("timestamp"))
        if version is not None and timestamp is not None:
            raise InvalidOperation("give option version or timestamp, not both")
        ref = _ref(given.get("ref"), version, timestamp)
        partitions = _number(given, "partitions")
        if partitions is not None and not 1 <= partitions <= _MOST_PARTITIONS:
            raise InvalidOperation(f"option partitions must be from 1 to {_MOST_PARTITIONS}")
        return cls(
            lake=given["lake"],
            table=table,
            ref=ref,
            version=version,
            timestamp=timestamp,
            columns=_names(given.get("columns")),
            where=given.get("where"),
            partitions=partitions,
            pushdown=_flag(given.get("pushdown")),
            starting_version=_number(given, "startingVersion"),
            limits=Limits(_limit(given, "maxFilesPerTrigger"), _limit(given, "maxBytesPerTrigger")),
            files_outside=tuple(_names(given.get("filesoutside"), "filesOutside") or ()),
        )

    def predicate(self, where: str) -> Expr:
        """Return the option ``where`` as a tree.

        Raises
        ------
        InvalidOperation
            The predicate is not valid, or depends on the present time: a repeated read would have
            other rows.
        """
        try:
            return parse_predicate(where)
        except InvalidOperation:
            if _depends_on_time(where):
                raise InvalidOperation(
                    f"table {self.table}: option where, {shown(where)}, depends on the present "
                    "time, and a batch that is read again must have the same rows: write the time "
                    "itself, as timestamp '2026-01-31 12:00:00', or leave the condition to Spark, "
                    "as .where(...) of the DataFrame",
                    table=self.table,
                ) from None
            raise


@dataclass(frozen=True, slots=True)
class VersionOptions:
    """The request of a reader of the lake's versions.

    Attributes
    ----------
    lake : str
    tables : list of str or None
        Names or patterns; versions that touch none of these tables are left out.
    starting_version : int
        The first requested global version.
    version : int or None
        The last one.
    ref : str or None
        The name of a branch; None for the lake itself.
    """

    lake: str
    tables: list[str] | None
    starting_version: int
    version: int | None
    ref: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> VersionOptions:
        """Parse the options that Spark passes; errors are those of ``ReadOptions.of``."""
        given = {name.lower(): value for name, value in options.items()}
        if given.get("path"):
            raise InvalidOperation(
                f"versions are those of the whole lake: .load() without {given['path']!r}, and "
                ".option('tables', ...) for some tables"
            )
        given.pop("path", None)
        unknown = sorted(given.keys() - {name.lower() for name in _KNOWN_OF_VERSIONS})
        if unknown:
            raise InvalidOperation(
                f"with what=versions the data source lakevilla has no option {', '.join(unknown)}: "
                f"{_meant(unknown[0], _KNOWN_OF_VERSIONS)}it has {', '.join(_KNOWN_OF_VERSIONS)}"
            )
        if not given.get("lake"):
            raise InvalidOperation(
                "the data source lakevilla needs the lake's root: .option('lake', 's3://...')"
            )
        first = _number(given, "startingVersion")
        if first is None:
            raise InvalidOperation(
                "versions need the global version that they begin with: "
                ".option('startingVersion', n), with 1 for all that is kept"
            )
        return cls(
            lake=given["lake"],
            tables=_names(given.get("tables"), "tables"),
            starting_version=first,
            version=_number(given, "version"),
            ref=_ref(given.get("ref"), None, None),
        )


def asks_for_versions(options: Mapping[str, str]) -> bool:
    """Return whether the options request the lake's versions instead of a table's rows.

    Raises
    ------
    InvalidOperation
        The value of ``what`` is not known.
    """
    what = {name.lower(): value for name, value in options.items()}.get("what", "rows")
    if what not in ("rows", "versions"):
        raise InvalidOperation(f"option what must be versions, or left out, not {shown(what)}")
    return what == "versions"


def _depends_on_time(where: str) -> bool:
    """Return whether an invalid predicate is valid once the present time has a value."""
    try:
        parse_predicate(_SPARKS_NOW.sub(r"\1", where), now=_ANY_TIME)
    except InvalidOperation:
        return False
    return True


def without_root(call: str, table: str | None, roots: Sequence[str]) -> InvalidOperation:
    """Return the error for options without a lake; it says what to write.

    ``roots`` are those of the session's lakes.
    """
    root = roots[0] if len(roots) == 1 else "s3://..."
    return InvalidOperation(
        f"the data source lakevilla needs the lake's root: .option('lake', {root!r})"
        f".{call}({table or 'sales/orders'!r})"
    )


def _one_table(path: str | None, table: str | None) -> str | None:
    if path and table and path != table:
        raise InvalidOperation(f"the table is {table!r} by its option and {path!r} by load()")
    return path or table or None


def _ref(name: str | None, version: int | None, timestamp: datetime | None) -> str | None:
    """Return the requested ref; refuse a version or time with it, which are the lake's own."""
    if name is None or name == MAIN:
        return None
    if not name:
        raise InvalidOperation("option ref must be the name of a ref, such as a tag's")
    if version is not None or timestamp is not None:
        other = "timestamp" if version is None else "version"
        raise InvalidOperation(
            f"give option ref or {other}, not both: {name!r} is a state of the lake itself; a "
            "version of a branch is option ref as 'etl@57'"
        )
    return name


def _meant(name: str, known: tuple[str, ...]) -> str:
    """Return the likely meaning of an unknown option, followed by a space; or nothing."""
    spelled = {one.lower(): one for one in known}
    near = get_close_matches(name, spelled, 1, 0.55)
    return _OF_DELTA.get(name) or (f"did you mean {spelled[near[0]]}? " if near else "")


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidOperation(f"option {name} must be a whole number, 0 or more, not {text!r}")
    return int(text)


def _limit(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    sized = re.fullmatch(r"([0-9]{1,15})([kmgt]?)b?", text.strip().lower())
    number = 0
    if sized is not None and (name == "maxBytesPerTrigger" or sized[0].isdigit()):
        number = int(sized[1]) << _SIZES[sized[2]]
    if not number:
        size = ", with k, m or g behind it if you like" if name == "maxBytesPerTrigger" else ""
        raise InvalidOperation(
            f"option {name} must be a whole number, 1 or more{size}, not {shown(text)}"
        )
    return number


def _flag(text: str | None) -> bool | None:
    if text is None:
        return None
    if text.lower() not in ("true", "false"):
        raise InvalidOperation(f"option pushdown must be true or false, not {shown(text)}")
    return text.lower() == "true"


def _timestamp(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOperation(
            "option timestamp must be like 2026-01-31T12:00:00+00:00, not " + shown(text)
        ) from None
    milliseconds(found)  # refuses a time without a zone
    return found


def _names(text: str | None, option: str = "columns") -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise InvalidOperation(
            f"option {option} must be different names with commas between them, not {shown(text)}"
        )
    return names

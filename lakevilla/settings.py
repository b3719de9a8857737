"""Settings: numbers with units, switches and places of stores."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from lakevilla.errors import InvalidOperation

#: Settings that may be zero, which means at once, each time, not at all, or that nothing is kept.
_MAY_BE_ZERO = {
    "foreign_staleness_seconds",
    "in_memory_file_limit_bytes",
    "max_redos",
    "row_check_limit_bytes",
    "save_interval_seconds",
    "retry_base_seconds",
    "retry_cap_seconds",
    "max_pending",
    "checked_tip_seconds",
    "max_age_seconds",
    "wait_timeout_seconds",
    "outcome_retention_seconds",
    "reuse_after_seconds",
    "cache_bytes",
    "format_limit",
}

#: The lake's formats that ``format_limit`` may name: the first is that of nearly every lake, the
#: last the newest of this release.
OLDEST_LIMIT, NEWEST_FORMAT = 2, 7

#: The longest time of a setting; a longer one is probably in a wrong unit.
MOST_SECONDS = 100 * 365 * 24 * 3600.0
_MOST_WHOLE = 2**63 - 1

#: The most characters of a value that a message shows.
_MOST_SHOWN = 120

#: The longest lease that clients trust. A lease is the time for which clients wait before they
#: clean up after a dead client, and a damaged record may claim any lease.
MOST_LEASE_SECONDS = 3600.0


#: Settings of time that may be infinite: never check again, or wait without a limit.
_MAY_BE_ENDLESS = {"foreign_staleness_seconds", "wait_timeout_seconds"}


@dataclass(frozen=True, slots=True)
class _StoreSettings:
    """The settings of requests to the store, which are a part of ``Settings``."""

    request_timeout_seconds: float = 30.0
    retry_limit: int = 8
    retry_base_seconds: float = 0.1
    retry_cap_seconds: float = 5.0
    check_reads: int = 3
    check_interval_seconds: float = 0.25


@dataclass(frozen=True, slots=True)
class Settings(_StoreSettings):
    """The settings of a user: ``lv.connect(root, settings=lv.Settings(...))``.

    Attributes
    ----------
    lease_seconds : float
        If a transaction's record has not changed for this long, other transactions give up its
        places in the queues. Its owner renews the record three times in this period. At most an
        hour.
    wait_timeout_seconds : float
        The time for which a transaction waits for the transactions ahead of it, unless it has its
        own value. After that it goes on optimistically. ``lake.run`` waits this long in each
        attempt.
    wait_poll_seconds, wait_poll_cap_seconds : float
        The first and the longest pause between two checks of the transaction for which another one
        waits.
    escalate_after : int
        After this many conflicts ``lake.run`` gives a transaction Feature.CT and reserves its
        tables in HEAD.
    max_age_seconds : float
        ``gc`` may fence transactions older than this. The value must be far below the retention of
        VACUUM (7 days) and of Iceberg's orphan removal (3 days).
    outcome_retention_seconds : float
        The time for which ``outcome`` and idempotency keys remember a transaction.
    reuse_after_seconds : float
        The time for which ``create_table`` refuses the path of a table whose data was deleted. Must
        be longer than ``publish_timeout_seconds`` plus one request of any client with all its
        retries (``retry_limit`` times ``request_timeout_seconds`` and ``retry_cap_seconds``), plus
        the difference between clocks. Otherwise a client that had begun to publish a commit to the
        old table could write it into the new one, and no client could read that any more. Use 0
        only if no other client writes.
    foreign_staleness_seconds : float
        The maximum age of the last check for commits of other clients; with 0, each use checks.
    row_check_limit_bytes : int
        If the files in a conflict are smaller than this in total, they are compared row by row.
    max_redos : int
        The number of times that a transaction redoes its operations before it raises
        ``ConflictError``.
    max_pending : int
        If a table has more pending commits than this, a writer publishes them first.
    save_interval_seconds : float
        If a transaction has had unsaved changes for this long, a thread of the lake saves it to the
        store, between two of its verbs. A transaction with 64 MiB of new files in memory is saved
        by the verb that made them.
    request_timeout_seconds : float
        The time limit of one request to the store.
    retry_limit : int
        The number of times that one request is sent before it counts as failed, or its outcome as
        unknown.
    retry_base_seconds, retry_cap_seconds : float
        The first and the longest pause between attempts, with random variation.
    check_reads : int
        With ``conditional_writes="check"`` on a store without conditional writes: the number of
        times that LakeVilla reads an object again after it has written it or before it relies on
        it.
    check_interval_seconds : float
        The pause between two of these reads. Its product with ``check_reads`` must be longer than a
        write takes from request to effect.
    publish_timeout_seconds : float
        The time for which ``commit`` tries to publish what it has decided.
    checked_tip_seconds : float
        A cached tip of a log is listed again when it is older than this (log clean-up may have
        removed its number), or older than half of ``reuse_after_seconds`` (the table may have
        been dropped and replaced).
    target_file_size_bytes : int
        The approximate maximum size of data files.
    memory_limit_bytes : int
        The memory limit of the DuckDB engine. SELECTs of ``sql`` have as much again, all of them
        together. They keep in it what they have read of files, until another SELECT needs the
        memory or the lake is closed.
    in_memory_file_limit_bytes : int
        Data files up to this size stay in memory until the commit stores them together with the
        commit object; larger files are uploaded at once.
    combine : bool
        Whether transactions of one lake object that wait for their commits at the same time, and
        whose results nobody has seen, may be performed together and share a global version.
    durable_files : bool
        Whether each file in a local directory is flushed to the disk (``os.fsync``) before the next
        step relies on it. False is faster and still safe if a process dies. After a power cut, or a
        crash of the operating system, the last commits may be missing or unreadable. Stores other
        than local directories have no such choice.
    hash_files : bool
        Whether the hash of each data file is stored with the commit that adds it. ``verify`` and
        reads with ``verify="on"`` compare files with it.
    cache_bytes : int
        The size of a process's cache of objects that never change (commit objects, pages, leaves,
        bases), for all of its lakes together: the largest value of the open lakes counts. A quarter
        as much again is for data files of up to 1 MiB that the process has written to a store. With
        0, nothing is cached.
    stores : tuple of str
        Other stores with tables of the lake, such as ``("s3://archive",)``: buckets and containers
        in addition to the root's. The lake's own objects open no store that is not named here or by
        a call of this client (``register``, ``create_table``, ``table``).
    identity : str
        Who writes, for other clients: each transaction has it in its metadata as ``identity``,
        unless it is given one there. Like each transaction with metadata, it is then performed
        together with no other. Its records, tags and branches name it, too. Empty by default:
        nothing of the user, the machine or the script is stored.
    sql_uris : bool
        Whether SQL may name tables by URIs and absolute paths that are outside of the root and not
        in the lake. Then any author of a statement can read and write all that this process can.
    format_limit : int
        For a rolling upgrade: the format of the oldest client of the lake, which is the ``format``
        that its ``HEAD.json`` may have. This client then stores nothing that such a client could
        not read: it raises ``InvalidOperation``, which names what needs a newer format, and does
        without what is only quicker. 2 at least; 0 means no limit.
    trusted_tip_seconds : float
        Read-only; the smaller of the two limits that ``checked_tip_seconds`` describes.

    Examples
    --------
    >>> lake = lv.connect("warehouse", settings=lv.Settings(lease_seconds=60.0))
    >>> lake.settings.wait_timeout_seconds  # as it was
    300.0
    """

    lease_seconds: float = 30.0
    wait_timeout_seconds: float = 300.0
    wait_poll_seconds: float = 0.25
    wait_poll_cap_seconds: float = 2.0
    escalate_after: int = 3
    max_age_seconds: float = 24 * 3600.0
    outcome_retention_seconds: float = 7 * 24 * 3600.0
    reuse_after_seconds: float = 600.0
    foreign_staleness_seconds: float = 0.0
    row_check_limit_bytes: int = 64 * 1024 * 1024
    max_redos: int = 10
    max_pending: int = 16
    save_interval_seconds: float = 5.0
    publish_timeout_seconds: float = 60.0
    checked_tip_seconds: float = 3600.0
    target_file_size_bytes: int = 128 * 1024 * 1024
    memory_limit_bytes: int = 1024 * 1024 * 1024
    in_memory_file_limit_bytes: int = 8 * 1024 * 1024
    combine: bool = True
    durable_files: bool = True
    hash_files: bool = True
    cache_bytes: int = 256 * 1024 * 1024
    stores: tuple[str, ...] = ()
    sql_uris: bool = False
    identity: str = ""
    format_limit: int = 0

    def allows(self, lake_format: int) -> bool:
        """Return whether ``format_limit`` lets this client store what needs a lake's format."""
        return not self.format_limit or lake_format <= self.format_limit

    @property
    def trusted_tip_seconds(self) -> float:
        """The time for which a cached tip is used; within it, no new table can be made in its
        place.
        """
        if not self.reuse_after_seconds:
            return self.checked_tip_seconds
        return min(self.checked_tip_seconds, self.reuse_after_seconds / 2)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "stores":
                fits = isinstance(value, tuple) and all(
                    isinstance(one, str) and "://" in one for one in value
                )
                if not fits:
                    raise InvalidOperation(
                        "settings: stores must be a tuple of URIs, such as ('s3://archive',), not "
                        f"{shown(value)}"
                    )
                continue
            if field.type == "str":
                if not (isinstance(value, str) and is_unicode(value)):
                    raise InvalidOperation(
                        f"settings: {field.name} must be a text in Unicode, not {shown(value)}"
                    )
                continue
            if field.type == "bool":
                if not isinstance(value, bool):
                    raise InvalidOperation(
                        f"settings: {field.name} must be True or False, not {shown(value)}"
                    )
                continue
            whole = field.type == "int"
            fits = isinstance(value, int | (int if whole else float)) and not isinstance(
                value, bool
            )
            may_be_zero = field.name in _MAY_BE_ZERO
            least = "0 or more" if may_be_zero else "more than 0"
            most = _most(field.name, whole=whole)
            endless = field.name in _MAY_BE_ENDLESS and value == math.inf
            fits = fits and (endless or 0 <= value <= most)
            if field.name == "format_limit" and value:
                fits = fits and OLDEST_LIMIT <= value <= NEWEST_FORMAT
                least, most = f"0 or {OLDEST_LIMIT} or more", NEWEST_FORMAT
            if not fits or (value == 0 and not may_be_zero):
                kind = "a whole number" if whole else "a number"
                raise InvalidOperation(
                    f"settings: {field.name} must be {kind}, {least} and at most {most:.12g}, "
                    f"not {shown(value)}"
                )


def _most(name: str, *, whole: bool) -> float:
    if whole:
        return _MOST_WHOLE
    return MOST_LEASE_SECONDS if name == "lease_seconds" else MOST_SECONDS


def shown(value: object) -> str:
    """Return a short form of a value, for messages.

    Python refuses to print an integer with thousands of digits.
    """
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number of more than 64 bits"
    try:
        text = " ".join(repr(value).split())
    except ValueError:
        return f"a {type(value).__name__} that holds a number of more than 64 bits"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def is_unicode(text: str) -> bool:
    """Return whether a text can be stored: it must not have half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)

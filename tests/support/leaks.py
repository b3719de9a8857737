"""What a process holds while it runs transactions, and whether that grows with their number."""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import lakevilla as lv
import lakevilla.dbapi
from lakevilla.engines.duckdb.reading import closed, relation
from lakevilla.formats.iceberg import table_format


@dataclass(frozen=True)
class Held:
    """What a process holds at one time."""

    threads: int
    descriptors: int
    temporary_files: int
    objects: int
    kilobytes: int


def held() -> Held:
    """Return what this process holds now."""
    gc.collect()
    resident = Path("/proc/self/statm").read_text().split()[1]
    return Held(
        threads=threading.active_count(),
        descriptors=len(os.listdir("/proc/self/fd")),
        temporary_files=len(os.listdir(tempfile.gettempdir())),
        objects=len(gc.get_objects()),
        kilobytes=int(resident) * os.sysconf("SC_PAGE_SIZE") >> 10,
    )


#: What may grow for each transaction: noise of the allocator, and what docs/reliability.md has
#: under "Long processes".
ALLOWED = {
    "threads": 0.001,
    "descriptors": 0.001,
    "temporary_files": 0.001,
    "objects": 0.2,
    "kilobytes": 5.0,
}
#: Caches fill up in so many transactions; until then, each may add so much.
_SETTLED, _ALLOWED_BEFORE = 5_000, {"objects": 1.0, "kilobytes": 15.0}
#: Caches that are so small here that they are full soon: what DuckDB has of files that SQL has read
#: (6 KB of a small file, of 20,000 at most), their names, and what is parsed of Iceberg tables.
_SMALL = (
    (closed, "MOST_FILES", 300),
    (relation, "_MOST_FILES", 300),
    (table_format, "_MANIFEST_BYTES", 1 << 20),
    (table_format, "_PAST_BYTES", 1 << 18),
    (table_format, "_METADATA_BYTES", 1 << 20),
)
#: A table keeps the names of the files that were removed from it, by default for a week.
_FORGETFUL = {
    "delta.deletedFileRetentionDuration": "interval 1 seconds",
    "delta.logRetentionDuration": "interval 1 seconds",
}
_FORGETFUL_ICEBERG = {
    "history.expire.max-snapshot-age-ms": "1000",
    "history.expire.min-snapshots-to-keep": "1",
    "write.metadata.previous-versions-max": "3",
}


def growth(samples: Sequence[tuple[int, Held]]) -> dict[str, float]:
    """Return how much of each a transaction adds: the slope over the last three quarters."""
    later = samples[len(samples) // 4 :]
    numbers = [number for number, _ in later]
    return {
        name: statistics.linear_regression(numbers, [getattr(one, name) for _, one in later]).slope
        for name in ALLOWED
    }


def leaks(samples: Sequence[tuple[int, Held]]) -> dict[str, float]:
    """Return what grows by more than it may."""
    filled = samples[-1][0] - samples[0][0] >= _SETTLED
    allowed = ALLOWED if filled else {**ALLOWED, **_ALLOWED_BEFORE}
    return {name: slope for name, slope in growth(samples).items() if slope > allowed[name]}


_SETTINGS = lv.Settings(durable_files=False, cache_bytes=1 << 20)


@contextmanager
def lake_in(directory: Path) -> Iterator[lv.Lake]:
    """Open a lake whose caches are full soon, and give the process an empty temporary directory."""
    (directory / "tmp").mkdir()
    before, tempfile.tempdir = tempfile.tempdir, str(directory / "tmp")
    try:
        with ExitStack() as stack:
            for module, name, value in _SMALL:
                stack.enter_context(mock.patch.object(module, name, value))
            yield stack.enter_context(lv.connect(str(directory / "lake"), settings=_SETTINGS))
    finally:
        tempfile.tempdir = before


def sampled(lake: lv.Lake, goes_on: Callable[[], bool], rounds: int = 1) -> list[tuple[int, Held]]:
    """Run transactions; return what the process held after so many rounds each, with their number.

    Between two clean-ups the lake has ever more files and versions, and a process what it knows of
    them. A slope over few of these says nothing: then sample after each clean-up (``TIDY``).
    """
    samples: list[tuple[int, Held]] = []
    for number in transactions(lake):
        if number % (len(_ROUND) * rounds) == 0:
            samples.append((number, held()))
        if not goes_on():
            break
    return samples


def transactions(lake: lv.Lake) -> Iterator[int]:
    """Run transactions of each kind in turn for ever; yield their number after each round."""
    rows = [{"id": number, "v": 0} for number in range(10)]
    lake.create_table("t", rows, properties=_FORGETFUL)
    lake.create_table("u", rows, properties=_FORGETFUL)
    lake.create_table("ice", rows, format="iceberg", properties=_FORGETFUL_ICEBERG)
    number = 0
    while True:
        for run in _ROUND:
            run(lake, number)
            number += 1
        if number // len(_ROUND) % TIDY == 0:
            _tidy(lake)
        yield number


#: Rounds between two clean-ups: what a lake itself has must not grow either.
TIDY = 10


def _tidy(lake: lv.Lake) -> None:
    lake.run(lambda txn: txn.overwrite("t", [{"id": n, "v": 0} for n in range(10)]))
    lake.table("t").optimize()
    lake.run(lambda txn: txn.overwrite("ice", [{"id": 0, "v": 0}]))
    lake.maintain()


def _conflict(lake: lv.Lake, number: int) -> None:
    """Let a transaction conflict, and be aborted."""
    txn = lake.transaction()
    txn.read("t", where="id = 1")
    txn.update("t", {"v": "v + 1"}, where="id = 1")
    lake.run(lambda other: other.update("t", {"v": "v + 1"}, where="id = 1"))
    try:
        txn.commit()
    except lv.ConflictError:
        return
    raise AssertionError("two transactions have read and changed one row")


def _raises(lake: lv.Lake, number: int) -> None:
    """Let a transaction's caller raise in the middle of it."""
    try:
        with lake.transaction() as txn:
            txn.append("t", [{"id": 77, "v": 0}])
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return


def _cancelled(lake: lv.Lake, number: int) -> None:
    txn = lake.transaction()
    txn.update("t", {"v": "v + 1"}, where="id = 5")
    txn.abort()


def _session(lake: lv.Lake, number: int) -> None:
    with lake.session() as session:
        session.sql("BEGIN; UPDATE t SET v = v + 1 WHERE id = 3; COMMIT")
        session.sql("SELECT sum(v) FROM t")


def _savepoints(lake: lv.Lake, number: int) -> None:
    with lake.session() as session:
        session.sql("BEGIN; INSERT INTO u VALUES (7, 7); SAVEPOINT a; DELETE FROM u WHERE id = 7")
        session.sql("ROLLBACK TO a; DELETE FROM u WHERE id = 7; COMMIT")


def _cursor(lake: lv.Lake, number: int) -> None:
    """Change and read rows by a connection of DB-API."""
    with lakevilla.dbapi.connect(lake) as connection:
        cursor = connection.cursor()
        cursor.execute("UPDATE u SET v = :v WHERE id = 2", {"v": number})
        connection.commit()
        cursor.execute("SELECT v FROM u WHERE id = 2")
        cursor.fetchall()


def _opened_anew(lake: lv.Lake, number: int) -> None:
    """Open the lake once more, commit, and close it."""
    with lv.connect(lake.root, settings=_SETTINGS) as other:
        other.run(lambda txn: txn.update("u", {"v": "v + 1"}, where="id = 4"))


def _branch(lake: lv.Lake, number: int) -> None:
    """Make a branch, merge it, and end it."""
    name = f"b{number}"
    lake.branch(name)
    lake.on(name).run(lambda txn: txn.update("u", {"v": "v + 1"}, where="id = 5"))
    lake.merge(name, delete=True)


def _thread(lake: lv.Lake, number: int) -> None:
    """Commit in a thread of its own."""
    work = threading.Thread(
        target=lake.run, args=(lambda txn: txn.update("u", {"v": "v + 1"}, where="id = 6"),)
    )
    work.start()
    work.join()


def _refused(lake: lv.Lake, number: int) -> None:
    """Let two statements be refused."""
    for sql in (f"SELECT missing_{number} FROM t", f"SELECT * FROM missing_{number}"):
        try:
            lake.sql(sql)
        except lv.LakeVillaError:
            continue
        raise AssertionError(f"{sql!r} is of something that is not there")


def _feed(lake: lv.Lake, number: int) -> None:
    """Read the rows that the newest versions have changed."""
    newest = lake.history(1)[0].version
    assert [version.version for version in lake.changes(newest - 2)]


_ROUND: tuple[Callable[[lv.Lake, int], Any], ...] = (
    lambda lake, number: lake.run(lambda txn: txn.append("t", [{"id": number, "v": 0}])),
    lambda lake, number: lake.run(lambda txn: txn.update("t", {"v": "v + 1"}, where="id = 2")),
    lambda lake, number: lake.run(lambda txn: txn.delete("t", where=f"id = {number - 2}")),
    lambda lake, number: lake.run(
        lambda txn: (txn.append("t", [{"id": -1, "v": 0}]), txn.append("u", [{"id": 1, "v": 1}]))
    ),
    lambda lake, number: lake.run(lambda txn: txn.upsert("t", [{"id": 3, "v": 9}], "id")),
    lambda lake, number: lake.read("t", where="v > 0"),
    lambda lake, number: next(iter(lake.scan("t")), None),
    _conflict,
    _raises,
    _session,
    _savepoints,
    _cursor,
    _opened_anew,
    _branch,
    _thread,
    _refused,
    _feed,
    lambda lake, number: lake.run(lambda txn: txn.append("ice", [{"id": number, "v": 0}])),
    lambda lake, number: lake.sql(f"SELECT count(*) FROM ice WHERE v < {number}"),
    _cancelled,
)

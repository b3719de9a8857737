"""Spark's Python processes are used again, and what they keep of one task costs the next."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from zipimport import zipimporter

from lakevilla.engines.spark.raising import said_first

__all__ = ["forget_archives", "in_worker"]


@contextmanager
def in_worker() -> Iterator[None]:
    """A block that a process of Spark runs for us: its errors are said first, and it ends light."""
    try:
        with said_first():
            yield
    finally:
        forget_archives()


def forget_archives() -> None:
    """Drop the import system's finders for what lies in archives that can't change under a session.

    Before each task Spark calls ``importlib.invalidate_caches``, and Python before 3.13 then reads
    the directory of an archive anew for each finder: for each package in ``pyspark.zip``, and for
    each jar of ``spark.jars.packages``, which Spark puts on the workers' path: a quarter of a
    second of the processor with Delta's. Safe because they are a cache: who imports from there
    again makes one anew, by the directory that Python keeps beside it. An archive of the user's
    may be another one under the same name, and is looked at as before.
    """
    session = {_archive_of("pyspark"), _archive_of("py4j")}
    for path, finder in list(sys.path_importer_cache.items()):
        if not isinstance(finder, zipimporter):
            continue
        if path != finder.archive or path.endswith(".jar") or path in session:
            sys.path_importer_cache.pop(path, None)


def _archive_of(package: str) -> str | None:
    """The archive that a package of Spark was imported from, if it was from one."""
    return getattr(getattr(sys.modules.get(package), "__loader__", None), "archive", None)

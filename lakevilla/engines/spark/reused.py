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
    """Drop the import system's finders of packages within an archive, as Spark's pyspark.zip.

    Before each task Spark calls ``importlib.invalidate_caches``, and Python before 3.13 then reads
    the directory of the archive anew for each of them: fifty times, a tenth of a second. Safe
    because they are a cache: who imports from there again makes one anew, by what the finder of
    the whole archive has read, which stays.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and path != finder.archive:
            sys.path_importer_cache.pop(path, None)

"""A session of Spark, and the import of LakeVilla on its workers."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lakevilla.errors import InvalidOperation

# -------------------- session
#
# Checks that a Spark session can serve a lake: it must run, in a suitable version.


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOPPED = "the Spark session was stopped: connect with one that runs"

#: The minor versions of Spark that the tests run with: 4.1 each time, the rest by spark-versions.
TESTED = ("4.0", "4.1", "4.2", "4.3")
#: The first version that has all that jobs need: ``DataFrame.toArrow`` and job tags, also on
#: Connect.
_LEAST = (4, 0)


def check_session(session: object) -> None:
    """Refuse an object that is no running session; warn of versions that the tests don't run with.

    Raises
    ------
    InvalidOperation
        It is no session, was stopped, or Spark is older than 4.0: with Spark Connect, the Spark of
        the session's server.
    """
    if not is_session(session):
        raise InvalidOperation(f"spark must be a SparkSession, not {type(session).__name__}")
    if is_stopped(session):  # type: ignore[arg-type]
        raise InvalidOperation(STOPPED)
    import pyspark

    versions = {
        "PySpark": pyspark.__version__,
        "Spark": session.version,  # type: ignore[attr-defined]
    }
    for name, version in versions.items():
        found = re.match(r"(\d+)\.(\d+)", str(version))
        if found is None:
            continue
        if (int(found[1]), int(found[2])) < _LEAST:
            raise InvalidOperation(
                f"{name} is {version}, and LakeVilla needs {_LEAST[0]}.{_LEAST[1]} or newer: "
                + (
                    "connect to a newer Spark Connect server"
                    if name == "Spark"
                    else "install a newer pyspark"
                )
            )
    others = {f"{name} {v}" for name, v in versions.items() if _minor(v) not in TESTED}
    if others:
        warnings.warn(
            f"{' and '.join(sorted(others))}: LakeVilla is tested with {TESTED[0]} to "
            f"{TESTED[-1]} only",
            UserWarning,
            stacklevel=5,  # the caller of connect, beyond the border
        )


def is_session(given: object) -> bool:
    """Return whether it is a session of Spark, classic or Connect."""
    return any(kind.__name__ == "SparkSession" for kind in type(given).__mro__)


def _minor(version: object) -> str:
    return ".".join(str(version).split(".")[:2])


def is_stopped(session: SparkSession) -> bool:
    """Return whether the session was stopped; send no request to a server."""
    try:
        if getattr(session, "is_stopped", False):  # Spark Connect has this attribute
            return True
        session.range(1)
    except AttributeError:
        return True  # the session's attributes are missing
    return False


def tasks_at_once(session: SparkSession) -> int | None:
    """Return how many tasks run at a time; None if only a job knows it, or it may change."""
    if type(session).__module__.startswith("pyspark.sql.connect."):
        return None
    if str(session.conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
        return None
    return int(session.sparkContext.defaultParallelism)


# -------------------- importing
#
# Functions for Spark's workers, which report it if LakeVilla is missing there.


#: The text before the reason, in a message of a worker.
LACKS = "LakeVilla is missing: "


def importer(module: str) -> Callable[[], Any]:
    """Return a function that imports a module of LakeVilla in the process that calls it.

    It is pickled by its value, as functions within functions are, so it can report what is missing.
    """
    lacks = LACKS
    here = sys.modules["lakevilla"].__version__
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"

    def imported() -> Any:
        import importlib
        import sys

        try:
            found = importlib.import_module(module)
        except ImportError as error:
            raise RuntimeError(
                f"{lacks}the Python of Spark's workers ({sys.executable}) can't import it "
                f"({error}): install lakevilla for Python {python} there, or set PYSPARK_PYTHON "
                "to an interpreter that has it, before the session starts"
            ) from None
        there = sys.modules["lakevilla"].__version__
        if there != here:
            raise RuntimeError(
                f"{lacks}the Python of Spark's workers ({sys.executable}) has version {there}, "
                f"and this driver {here}: install the same on both"
            )
        return found

    return imported

"""Tests of rows with other versions of LakeVilla's dependencies: ``make versions COLUMN=newest``.

A column is an environment of its own below ``.cache``. ``newest`` has of each dependency the
newest version that ``pyproject.toml`` allows, ``oldest`` the one that its lower bound names; the
tools that test are the newest in both. Neither has PySpark, nor DuckDB's extensions, which are of
one release of DuckDB's each. The arguments behind the column are pytest's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.support.environments import installed, name_of

ROOT = Path(__file__).parents[1]
COLUMNS = ("newest", "oldest")
#: Of the extras: what the tested part of the library reads and writes rows with.
EXTRAS = ("iceberg",)
FRAMES = ("pandas", "polars")
TOOLS = (
    *("boto3", "deltalake", "flask", "flask-cors", "hypothesis", "moto", "pyroaring", "networkx"),
    *("ministack", "pyiceberg", "pytest", "pytest-timeout", "pytest-xdist"),
)
#: Engines, expressions, rows and SQL.
TESTS = (
    *("tests/unit/engines", "tests/unit/sql", "tests/unit/arrow"),
    *("tests/contract/engines", "tests/contract/rows", "tests/contract/sql", "tests/property"),
    "tests/contract/reading/test_attached.py",
)
#: What needs PySpark to be collected; tests in its session are left out by their group.
WITHOUT = ("tests/unit/engines/spark", "tests/contract/sql/test_on_spark.py")
#: What the oldest of a dependency calls of the newest that it takes itself, to be removed there.
OUTLIVED = (
    "ignore:'click.utils.get_binary_stream' is deprecated:DeprecationWarning",
    "ignore:'click.utils.get_text_stream' is deprecated:DeprecationWarning",
)
MARKS = "not soak and not integration and not xdist_group"


def main(column: str, arguments: list[str]) -> int:
    if column not in COLUMNS:
        print(f"no column {column!r}: choose one of {', '.join(COLUMNS)}", file=sys.stderr)
        return 2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = wanted(project, column)
    python = installed(ROOT / ".cache" / "versions" / column, [*requirements, "-e", str(ROOT)])
    command = [str(python), "-m", "pytest", *TESTS, "-m", MARKS, "-p", "no:cacheprovider"]
    command += [f"--ignore={path}" for path in WITHOUT]
    command += [f"-W{one}" for one in OUTLIVED]
    environment = {**os.environ, "LAKEVILLA_COLUMN": column}
    return subprocess.run([*command, *arguments], cwd=ROOT, env=environment, check=False).returncode


def wanted(project: dict[str, object], column: str) -> list[str]:
    """Return what is installed beside the library itself, as pip takes it."""
    extras: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    depends: list[str] = project["dependencies"]  # type: ignore[assignment]
    tested = [*depends, *(one for extra in EXTRAS for one in extras[extra])]
    tested += [one for one in extras["dev"] if name_of(one) in FRAMES]
    tools = [one for one in extras["dev"] if name_of(one) in TOOLS]
    return [*(map(at_its_lowest, tested) if column == "oldest" else tested), *tools]


def at_its_lowest(requirement: str) -> str:
    """``pyarrow>=20,<30`` as ``pyarrow==20``."""
    found = re.fullmatch(r"([^<>=!~]+)>=([\w.]+)(?:,.*)?", requirement)
    if found is None:
        raise SystemExit(f"{requirement}: a dependency says from which version on it is good")
    return f"{found[1]}=={found[2]}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))

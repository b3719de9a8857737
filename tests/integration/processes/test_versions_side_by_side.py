"""This release beside an earlier one on one lake: two wheels, each in processes of its own.

There is no release yet, so the earlier one is a revision of this repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import lakevilla as lv
from tests.integration.processes.crowds import ROOT

#: The last revision whose clients know HEAD up to format 6.
BEFORE = "380a19ba"
OLDER_FORMAT = 6
FORMATS = pytest.mark.parametrize("format", ["delta", "iceberg"])

#: To build the wheels takes ten seconds or more.
pytestmark = [pytest.mark.timeout(300), pytest.mark.night]


@dataclass(frozen=True)
class Release:
    """A release that is unpacked into a directory of its own."""

    library: Path

    def runs(self, text: str, root: Path) -> subprocess.Popen[str]:
        """Start a process that has ``lake``, opened by this release, and runs a text."""
        text = f"import sys\nimport lakevilla as lv\nlake = lv.connect(sys.argv[1])\n{text}"
        text += f"\nassert lv.__file__.startswith({str(self.library)!r}), lv.__file__\n"
        return subprocess.Popen(
            [sys.executable, "-c", text, str(root)],
            cwd=self.library,
            env={**os.environ, "PYTHONPATH": str(self.library)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def does(self, text: str, root: Path) -> str:
        """Run a text to its end; return what it has printed."""
        process = self.runs(text, root)
        printed, errors = process.communicate()
        assert process.returncode == 0, errors
        return printed


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Release:
    directory = tmp_path_factory.mktemp("older")
    archive = directory / "source.tar"
    made = subprocess.run(
        ["git", "archive", "--output", str(archive), BEFORE],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(
            f"revision {BEFORE} is not in this clone ({made.stderr.strip()}): fetch the whole "
            "history with `git fetch --unshallow`"
        )
    with tarfile.open(archive) as tar:
        tar.extractall(directory / "source", filter="data")
    return unpacked_wheel(directory / "source", directory)


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return unpacked_wheel(ROOT, tmp_path_factory.mktemp("newer"))


def unpacked_wheel(source: Path, directory: Path) -> Release:
    """Build a wheel without the network, with the tools that are installed here."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(directory / "library")
    return Release(directory / "library")


CHANGES = """
for number in range(6):
    lake.run(lambda txn: txn.update("t", {"n": "n + 1"}, where="id = 0"))
    lake.run(lambda txn, number: txn.append("t", [{"id": 100 * OWN + number, "n": 0}]), number)
lake.table("t").optimize()
lake.tag(f"v{OWN}")
lake.branch(f"b{OWN}")
lake.on(f"b{OWN}").run(lambda txn: txn.append("t", [{"id": 1000 * OWN, "n": 0}]))
lake.merge(f"b{OWN}", delete=True)
assert lake.maintain().ok
"""


@FORMATS
@pytest.mark.cases(1)
def test_two_releases_write_one_lake_at_once_and_lose_nothing(
    tmp_path: Path, older: Release, newer: Release, format: str
) -> None:
    with lv.connect(tmp_path) as lake:
        lake.create_table("t", [{"id": 0, "n": 0}], format=format)  # type: ignore[arg-type]
    at_work = [
        (one, one.runs(CHANGES.replace("OWN", str(own)), tmp_path))
        for own, one in enumerate((older, newer), start=1)
    ]
    for _, process in at_work:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    expected = {0, 1000, 2000, *range(100, 106), *range(200, 206)}
    show = "print(sorted(lake.read('t')['id'].to_pylist()), lake.read('t', where='id = 0'))"
    assert older.does(show, tmp_path) == newer.does(show, tmp_path)
    with lv.connect(tmp_path) as lake:
        rows = lake.read("t").to_pylist()
        assert {row["id"] for row in rows} == expected
        assert len(rows) == len(expected)
        assert [row["n"] for row in rows if row["id"] == 0] == [12]
        assert {ref.name for ref in lake.refs()} == {"v1", "v2"}
        assert lake.doctor().ok
        assert lake.verify().ok


REBASES = """
lake.branch("etl")
lake.on("etl").run(lambda txn: txn.append("t", [{"id": 1, "n": 0}]))
lake.run(lambda txn: txn.append("t", [{"id": 2, "n": 0}]))
lake.rebase("etl")
"""


@FORMATS
@pytest.mark.cases(1)
def test_an_older_release_is_refused_at_what_needs_the_newer_one_and_nowhere_else(
    tmp_path: Path, older: Release, newer: Release, format: str
) -> None:
    with lv.connect(tmp_path) as lake:
        lake.create_table("t", [{"id": 0, "n": 0}], format=format)  # type: ignore[arg-type]
    newer.does(REBASES, tmp_path)
    refused = older.runs('lake.on("etl").run(lambda txn: txn.append("t", [{"id": 3}]))', tmp_path)
    _, errors = refused.communicate()
    assert "UnsupportedFormat" in errors
    assert "HEAD.json has format version 7" in errors
    older.does('lake.run(lambda txn: txn.append("t", [{"id": 4, "n": 0}]))', tmp_path)
    newer.does('lake.merge("etl")', tmp_path)
    assert older.does("print(sorted(lake.read('t')['id'].to_pylist()))", tmp_path).split("\n")[
        0
    ] == str([0, 1, 2, 4])


@FORMATS
@pytest.mark.cases(1)
def test_a_newer_release_with_a_limit_leaves_all_of_the_lake_to_the_older_one(
    tmp_path: Path, older: Release, newer: Release, format: str
) -> None:
    with lv.connect(tmp_path) as lake:
        lake.create_table("t", [{"id": 0, "n": 0}], format=format)  # type: ignore[arg-type]
    limited = f"lake = lv.connect(sys.argv[1], settings=lv.Settings(format_limit={OLDER_FORMAT}))"
    told = newer.runs(f"{limited}\n{REBASES}", tmp_path)
    _, errors = told.communicate()
    assert "InvalidOperation" in errors
    assert f"clients of format {OLDER_FORMAT}" in errors
    older.does(
        'lake.on("etl").run(lambda txn: txn.append("t", [{"id": 3, "n": 0}]))\nlake.merge("etl")',
        tmp_path,
    )
    with lv.connect(tmp_path) as lake:
        assert sorted(lake.read("t")["id"].to_pylist()) == [0, 1, 2, 3]
        assert lake.doctor().ok

"""Check the distributions of this repository: the library, its test tools, the adapter of dbt."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("project", "package"), [(".", "lakevilla"), ("lakevilla_testing", "lakevilla_testing")]
)
def test_a_wheel_has_the_modules_of_its_package_and_nothing_else(
    project: str, package: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT / project, check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.py")}
    kinds = ("*.html", "*.css", "*.go", "go.*")  # the gateway's page, and the program of Porcupine
    found = [path for kind in kinds for path in (ROOT / package).rglob(kind)]
    data = {str(path.relative_to(ROOT)) for path in found}
    assert len(data) == (3 if package == "lakevilla_testing" else len(data)) > 2
    assert {name for name in names if ".dist-info/" not in name} == modules | data | (
        {"lakevilla/py.typed"} if package == "lakevilla" else set()
    )


def test_the_wheel_for_dbt_adds_to_the_packages_of_dbt_and_replaces_none(tmp_path: Path) -> None:
    project = ROOT / "dbt_lakevilla"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    ours = [path for path in (project / "dbt").rglob("*") if path.suffix in (".py", ".sql", ".yml")]
    assert names == {str(path.relative_to(project)) for path in ours}
    assert all("lakevilla" in name for name in names)

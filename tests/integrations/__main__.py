"""Run the guide and the tests of a tool that LakeVilla works with.

A tool has a guide with its name and ``<!-- needs: integration -->`` in ``docs/guides``, and maybe
tests in a directory with its name beside this file. They run with the newest release of the tool
and with the newest one of the minor version before. Each release has an environment of its own,
made by the first ``pip install`` of the guide, and has nothing else but pytest.

Without ``TOOL`` all tools run; ``TURN=N`` runs the N-th, counted around, and ``FOR=M`` begins no
further release after half of so many minutes. ``ARGS`` are pytest's.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.support.environments import installed

ROOT = Path(__file__).parents[2]
#: The package of each tool, whose releases are tested. A guide has the tool's name.
TOOLS = {
    "agents": "mcp",
    "dbt": "dbt-core",
    "dlt": "dlt",
    "great-expectations": "great-expectations",
    "ibis": "ibis-framework",
    "jupysql": "jupysql",
    "marimo": "marimo",
    "pandas": "pandas",
    "polars": "polars",
    "sqlalchemy": "sqlalchemy",
}
#: Directories of the distributions that a guide installs.
OURS = {"lakevilla": ROOT, "dbt-lakevilla": ROOT / "dbt_lakevilla"}
#: What the tests of a tool need besides. From 1.12.1 on, dbt-core needs a parser that a build of
#: its package fetches from GitHub; pip installs the one of 1.12.0 by itself.
BESIDES = {"dbt": ("dbt-core-experimental-parser==2.0.0a4", "dbt-duckdb", "dbt-tests-adapter")}
LIMITS = {"dbt-core": SpecifierSet("<1.12.1")}
#: What runs the guide and the tests.
TESTING = ("pytest>=8.2,<9.2", "pytest-timeout>=2.3", "sybil>=9")
INSTALL = re.compile(r"^\$ pip install (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Release:
    tool: str
    version: Version

    @property
    def directory(self) -> Path:
        return ROOT / ".cache" / "integrations" / f"{self.tool}-{self.version}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("make integrations", description=__doc__)
    parser.add_argument("tools", nargs="*", choices=[[], *TOOLS], metavar="TOOL")
    parser.add_argument("--turn", type=int, help="run one tool: the N-th, counted around")
    parser.add_argument("--minutes", type=float, help="begin nothing after half of them")
    parser.add_argument("--args", default="", help="arguments of pytest")
    given = parser.parse_args(arguments)
    tools = given.tools or list(TOOLS)
    if given.turn is not None:
        tools = [tools[given.turn % len(tools)]]
    until = None if given.minutes is None else time.monotonic() + given.minutes * 30
    results: dict[Release, str] = {}
    with tempfile.TemporaryDirectory() as wheels:
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        for tool in tools:
            for release in releases(tool):
                if until is not None and results and time.monotonic() > until:
                    results[release] = "left to the next night"
                    continue
                failed = tested(release, wheels, given.args.split())
                results[release] = "failed" if failed else "passed"
    for release, result in results.items():
        print(f"{release.tool} {release.version}: {result}")
    return int("failed" in results.values())


def releases(tool: str) -> list[Release]:
    """Return the newest release of a tool, and the newest one of the minor version before.

    Both are among those that LakeVilla's extras allow.
    """
    pip = [sys.executable, "-m", "pip", "index", "versions", TOOLS[tool]]
    done = subprocess.run(pip, check=True, capture_output=True, text=True)
    found = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit(f"pip knows no versions of {TOOLS[tool]}:\n{done.stdout}")
    allowed = allowed_versions(TOOLS[tool])
    versions = sorted(filter(allowed.contains, map(Version, found[1].split(", "))), reverse=True)
    minor = {version.release[:2]: version for version in reversed(versions)}
    return [Release(tool, version) for version in sorted(minor.values(), reverse=True)[:2]]


def allowed_versions(package: str) -> SpecifierSet:
    """Return the versions of a package that the extras of our distributions allow."""
    allowed = LIMITS.get(package, SpecifierSet())
    for directory in OURS.values():
        project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
        extras = project.get("optional-dependencies", {})
        own = [extras[name] for name in extras.keys() - {"bench", "dev", "docs"}]
        for requirement in map(Requirement, [*project["dependencies"], *chain(*own)]):
            if requirement.name.lower() == package:
                allowed &= requirement.specifier
    return allowed


def tested(release: Release, wheels: str, arguments: list[str]) -> int:
    """Run the guide and the tests of a tool with one of its releases."""
    wanted = [*asked(release.tool), f"{TOOLS[release.tool]}=={release.version}", *TESTING]
    wanted += BESIDES.get(release.tool, ())
    python = installed(release.directory, wanted)
    where = ROOT / "tests" / "integrations"
    own = where / release.tool
    command = [str(python), "-m", "pytest", str(where / "test_guide.py")]
    command += [str(own)] if own.is_dir() else []
    # Without the fixtures of all other tests, whose packages are not installed.
    command += [f"--confcutdir={where}", "-p", "no:cacheprovider"]
    # Other projects' code may warn.
    command += ["-o", "filterwarnings=default", *arguments]
    environment = {**os.environ, "LAKEVILLA_TOOL": release.tool, "DIST": wheels}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def asked(tool: str) -> list[str]:
    """Return what the guide of a tool installs, our distributions from this checkout."""
    guide = ROOT / "docs" / "guides" / f"{tool}.md"
    found = INSTALL.search(guide.read_text())
    if found is None:
        raise SystemExit(f"{guide} does not say `$ pip install ...`")
    requirements: list[str] = []
    for one in found[1].replace('"', "").replace("'", "").split():
        wanted = Requirement(one)
        extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
        directory = OURS.get(wanted.name)
        requirements += [one] if directory is None else ["-e", f"{directory}{extras}"]
    # The other distributions need the library of this checkout, too.
    return ["-e", str(ROOT), *requirements]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

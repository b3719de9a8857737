"""`make test` first checks for Java 17: it uses or installs it, or reports what to do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[1] / "java.sh"


class Machine:
    """A stub of a machine: the programs that the check finds on PATH, and nothing else."""

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "bin"
        self.bin.mkdir()
        for tool in ("sh", "sed", "head", "tail", "mktemp", "rm", "cat", "chmod"):
            found = shutil.which(tool)
            assert found
            (self.bin / tool).symlink_to(found)
        self.is_user(0)

    def has(self, name: str, script: str, under: Path | None = None) -> None:
        path = (under or self.bin) / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def has_java(self, version: str, under: Path | None = None) -> None:
        said = f'openjdk version "{version}" 2024-01-16'
        self.has("java", f"echo 'Picked up JAVA_TOOL_OPTIONS' >&2; echo '{said}' >&2", under)

    def is_user(self, number: int) -> None:
        self.has("id", f"echo {number}")

    def can_install(self, version: str | None) -> None:
        """Add an apt-get that notes its calls, and installs a java, or fails."""
        note = f'echo "$*" >> {self.bin}/calls'
        if version is None:
            self.has("apt-get", f"{note}; echo 'E: no such package'; exit 100")
            return
        java = f"#!/bin/sh\\necho 'openjdk version \\\"{version}\\\"' >&2"
        install = f'printf "{java}\\n" > {self.bin}/java; chmod +x {self.bin}/java'
        self.has("apt-get", f"{note}; echo much; case $1 in install) {install};; esac")

    def check(self, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CHECK],
            env={"PATH": str(self.bin), **more},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def installs(self) -> list[str]:
        calls = self.bin / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("version", ["17", "17.0.9", "21.0.2", "25-ea"])
def test_a_java_that_is_new_enough_is_used(machine: Machine, version: str) -> None:
    machine.can_install("17.0.9")
    machine.has_java(version)
    ran = machine.check()
    assert (ran.returncode, ran.stdout, ran.stderr, machine.installs) == (0, "", "", [])


def test_the_java_in_java_home_has_precedence(machine: Machine, tmp_path: Path) -> None:
    home = tmp_path / "jdk" / "bin"
    home.mkdir(parents=True)
    machine.has_java("11.0.2")
    machine.has_java("21.0.2", home)
    assert machine.check(JAVA_HOME=str(home.parent)).returncode == 0
    machine.has_java("1.8.0_392", home)
    machine.has_java("21.0.2")
    ran = machine.check(JAVA_HOME=str(home.parent))
    assert ran.returncode == 1
    assert "has Java 8)" in ran.stderr


def test_java_is_installed_silently_for_root_on_debian(machine: Machine) -> None:
    machine.can_install("17.0.9")
    ran = machine.check()
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert machine.installs == [
        "update",
        "install -y --no-install-recommends openjdk-17-jre-headless",
    ]
    assert machine.check().returncode == 0
    assert len(machine.installs) == 2, "what is installed is found"


def _told(ran: subprocess.CompletedProcess[str], why: str) -> None:
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert len(ran.stderr.splitlines()) == 1
    assert why in ran.stderr
    assert "install OpenJDK 17" in ran.stderr


def test_missing_java_without_root_or_apt_is_reported_in_one_line(machine: Machine) -> None:
    _told(machine.check(), "there is no java on PATH")
    machine.can_install("17.0.9")
    machine.is_user(1000)
    _told(machine.check(), "there is no java on PATH")
    assert machine.installs == []


def test_an_old_java_is_kept_and_reported(machine: Machine) -> None:
    machine.can_install("17.0.9")
    machine.has_java("11.0.21")
    _told(machine.check(), "java on PATH is Java 11")
    assert machine.installs == []


def test_a_failed_installation_of_java_is_reported_in_one_line(machine: Machine) -> None:
    machine.can_install(None)
    _told(machine.check(), "apt-get failed: E: no such package")
    machine.can_install("11.0.2")
    _told(machine.check(), "what apt-get installed does not run")


def test_make_test_checks_for_java_first() -> None:
    make = shutil.which("make")
    assert make
    root = CHECK.parents[1]
    planned = subprocess.run(
        [make, "--dry-run", "--always-make", "test"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert planned.index("tests/java.sh") < planned.index("-m pytest")
    assert "--dist loadgroup" in planned, "the tests with Spark share one worker, and its session"

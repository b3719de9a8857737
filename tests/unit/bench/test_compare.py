"""A comparison runs two revisions of the library in turn, and then removes the older one's
worktree.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.harness.parameters import WrongParameter
from bench.report import compare

#: A benchmark that reports which library it has loaded; its child process must load the same one.
COMMAND = """
import json, multiprocessing, pathlib, sys
import lakevilla

def tried(_):
    return lakevilla.milliseconds()

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (p50_ms,) = pool.map(tried, [0])
    assert p50_ms == lakevilla.milliseconds()
    _, name, _, output, *_ = sys.argv[1:]
    result = {
        "benchmark": name, "seed": 1, "profile": "zero", "quick": True, "parameters": {},
        "series": [
            {
                "system": "ours",
                "params": {},
                "n": lakevilla.N,
                "p50_ms": p50_ms,
                "deaths": lakevilla.DEATHS,
            }
        ],
        "checks": {"it adds up": lakevilla.ADDS_UP},
    }
    path = pathlib.Path(output, name)
    path.mkdir(parents=True)
    (path / "result.json").write_text(json.dumps(result))
"""
LIBRARY = "N = {n}\nDEATHS = {deaths!r}\nADDS_UP = {adds_up}\ndef milliseconds(): return {ms}\n"


class Checkout:
    def __init__(self, root: Path) -> None:
        self.root = root

    def begin(self) -> None:
        self.git("init", "--quiet", "--initial-branch", "main")
        for package in ("bench", "lakevilla"):
            (self.root / package).mkdir()
        (self.root / "bench" / "__init__.py").touch()
        (self.root / "bench" / "command.py").write_text(COMMAND)

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(self.root), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def commit(self, library: str, tag: str) -> None:
        (self.root / "lakevilla" / "__init__.py").write_text(library)
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", tag)
        self.git("tag", tag)

    def compare(self, base: str) -> compare.Pair:
        self.said: list[str] = []
        return compare.in_turn(base, ["tried"], [], 2, self.said.append, self.root)


def library(ms: float, deaths: tuple[str, ...] = (), *, adds_up: bool = True, n: int = 1) -> str:
    return LIBRARY.format(n=n, ms=ms, deaths=list(deaths), adds_up=adds_up)


@pytest.fixture(scope="module")  # each test gets a copy: making a commit takes three processes
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Checkout(tmp_path_factory.mktemp("committed"))
    made.begin()
    made.commit("", "without")
    made.commit(library(9.0, ("client 0: AttributeError: no attribute 'guard'",)), "dying")
    made.commit(library(9.0, adds_up=False), "wrong")
    made.commit(library(0.0, n=0), "idle")
    made.commit(library(4.0), "slow")
    made.commit(library(2.0), "fast")
    return made.root


@pytest.fixture
def checkout(committed: Path, tmp_path: Path) -> Iterator[Checkout]:
    made = Checkout(shutil.copytree(committed, tmp_path, dirs_exist_ok=True))
    yield made
    (only,) = made.git("worktree", "list").strip().splitlines()
    assert str(tmp_path) in only, "the tree of the base is removed"


def test_each_side_of_a_comparison_loads_its_own_library_also_in_child_processes(
    checkout: Checkout,
) -> None:
    base, here = checkout.compare("slow")
    assert [one.series[0].p50_ms for one in base] == [4.0, 4.0]
    assert [one.series[0].p50_ms for one in here] == [2.0, 2.0]
    assert compare.rows((base, here))[0][-2:] == ["0.50", "the same"]


def test_the_two_sides_of_a_comparison_alternate_in_going_first(checkout: Checkout) -> None:
    checkout.compare("slow")
    assert checkout.said == [
        "tried, slow, turn 1 of 2",
        "tried, this tree, turn 1 of 2",
        "tried, this tree, turn 2 of 2",
        "tried, slow, turn 2 of 2",
    ]


@pytest.mark.parametrize(
    ("base", "why"),
    [
        ("without", "tried does not run with the library of without: AttributeError: module"),
        ("dying", "tried does not run with the library of dying: client 0: AttributeError"),
        ("wrong", "tried, with the library of wrong: check failed: it adds up"),
        ("idle", "tried, with the library of idle: no operation was done: ours"),
    ],
)
def test_a_base_revision_without_a_function_that_the_benchmark_calls_is_reported(
    checkout: Checkout, base: str, why: str
) -> None:
    with pytest.raises(WrongParameter) as caught:
        checkout.compare(base)
    assert why in str(caught.value)


def test_a_revision_without_a_library_is_reported(checkout: Checkout) -> None:
    checkout.git("rm", "--quiet", "-r", "lakevilla")
    checkout.git("commit", "--quiet", "-m", "none")
    checkout.git("tag", "none")
    with pytest.raises(WrongParameter, match="has no library in lakevilla/"):
        checkout.compare("none")


def test_ctrl_c_removes_the_worktree_of_the_base_revision(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> None:
        assert len(checkout.git("worktree", "list").strip().splitlines()) == 2
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkout.compare("slow")

"""Two revisions of the library, timed in turn by the benchmarks of this tree."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.harness.parameters import WrongParameter
from bench.harness.results import Result, Series, load

#: What a benchmark says that was interrupted, or whose check failed, and left its result.
_LEFT_A_RESULT = (0, 1)
#: How long a benchmark may take to close its lakes after Ctrl-C.
_CLOSES_SECONDS = 20

#: What a comparison of quick runs is worth.
QUICK = "--quick is for trying: with so few operations, a ratio may be noise. Measure without it."

#: The checkout that this file is in.
HERE = Path(__file__).resolve().parents[2]
#: Results of the base and of this tree.
Pair = tuple[list[Result], list[Result]]


def in_turn(
    base: str,
    names: Sequence[str],
    options: Sequence[str],
    rounds: int,
    advance: Callable[[str], None],
    here: Path = HERE,
) -> Pair:
    """Run each benchmark with the library of ``base`` and with that of this tree, in turn.

    They also take turns in who goes first.
    The worktree of ``base`` is removed at the end, whatever ends it.
    """
    pair: Pair = ([], [])
    with tempfile.TemporaryDirectory(prefix="lakevilla-compare-") as name:
        directory = Path(name)
        with _worktree(here, base, directory / "base") as tree:
            sides = [(base, tree, pair[0]), ("this tree", here, pair[1])]
            for turn in range(rounds):
                # Who goes first has cold caches, and a machine that has rested.
                for side, library, results in sides if turn % 2 == 0 else reversed(sides):
                    root = _beside(directory / f"library-{side == base}", library, here)
                    for benchmark in names:
                        advance(f"{benchmark}, {side}, turn {turn + 1} of {rounds}")
                        into = directory / f"results-{side == base}-{turn}"
                        results.append(_run(root, side, benchmark, into, options))
    return pair


@contextmanager
def _worktree(here: Path, base: str, tree: Path) -> Iterator[Path]:
    git = ["git", "-C", str(here)]
    asked = [*git, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    if found.returncode:
        raise WrongParameter(
            f"no revision {base!r} in {here}: name a commit, a branch or a tag, such as main~5"
        )
    try:
        made = subprocess.run(
            [*git, "worktree", "add", "--detach", str(tree), found.stdout.strip()],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise WrongParameter(f"no worktree of {base!r}: {made.stderr.strip()}")
        if not (tree / "lakevilla" / "__init__.py").exists():
            raise WrongParameter(f"{base!r} has no library in lakevilla/: name a later revision")
        yield tree
    finally:
        for undo in (["remove", "--force", str(tree)], ["prune"]):
            subprocess.run([*git, "worktree", *undo], capture_output=True, check=False)


def _beside(root: Path, library: Path, here: Path) -> Path:
    """A directory with that library and the benchmarks of this tree.

    Not two entries of the path: a benchmark's own processes must find the same library.
    """
    if not root.exists():
        root.mkdir()
        (root / "lakevilla").symlink_to(library / "lakevilla")
        (root / "bench").symlink_to(here / "bench")
    return root


def _run(root: Path, side: str, name: str, into: Path, options: Sequence[str]) -> Result:
    command = [sys.executable, "-m", "bench.command", "run", name, "--output", str(into), *options]
    process = subprocess.Popen(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, said = process.communicate()
    except BaseException:
        # Ctrl-C reached it as well: it closes its lakes and its server before the tree goes.
        try:
            process.communicate(timeout=_CLOSES_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        raise
    path = into / name / "result.json"
    if process.returncode not in _LEFT_A_RESULT or not path.exists():
        lines = said.strip().splitlines() or [f"status {process.returncode}"]
        raise WrongParameter(
            f"{name} does not run with the library of {side}: {lines[-1]}: compare "
            "with a revision that has what the benchmark calls"
        )
    result = load(path)
    deaths = [why for one in result.series for why in one.deaths]
    if deaths:
        raise WrongParameter(f"{name} does not run with the library of {side}: {deaths[0]}")
    failed = [check for check, holds in result.checks.items() if not holds]
    if failed:
        raise WrongParameter(f"{name}, with the library of {side}: check failed: {failed[0]}")
    if result.idle:
        raise WrongParameter(
            f"{name}, with the library of {side}: no operation was done: {result.idle[0]}"
        )
    return result


def columns(base: str) -> list[str]:
    """The head of the table."""
    return [
        "benchmark",
        "system",
        "parameters",
        f"p50 ms, {base}",
        "p50 ms, this tree",
        "ratio",
        "requests",
    ]


def rows(pair: Pair) -> list[list[str]]:
    """Each series that both have: median, least and most of its turns, and its requests."""
    olds, news = (_by_series(results) for results in pair)
    found = []
    for key in (key for key in news if key in olds):
        sides = [[one.p50_ms for one in side[key]] for side in (olds, news)]
        medians = [statistics.median(values) for values in sides]
        old, new = (side[key][-1].requests for side in (olds, news))
        spreads = (
            f"{median:.4g} ({min(values):.4g} to {max(values):.4g})"
            for median, values in zip(medians, sides, strict=True)
        )
        requests = "the same" if old == new else f"{_words(old)} → {_words(new)}"
        found.append([*key, *spreads, f"{medians[1] / max(medians[0], 1e-9):.2f}", requests])
    return found


def _by_series(results: Sequence[Result]) -> dict[tuple[str, str, str], list[Series]]:
    found: dict[tuple[str, str, str], list[Series]] = {}
    for result in results:
        for one in result.series:
            found.setdefault((result.benchmark, one.system, one.described), []).append(one)
    return found


def _words(requests: dict[str, int]) -> str:
    return " ".join(f"{count} {verb}" for verb, count in requests.items() if count)

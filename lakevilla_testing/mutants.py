"""Put small faults into the library, one at a time, and see whether the tests find them.

``python -m lakevilla_testing.mutants --seed 1 --count 40`` draws mutants of the packages that
decide what is committed, and in which order, puts each into the working tree of a clone, and runs a
command there, by default ``make test`` that ends with the first failure. A mutant is a comparison
turned round, a condition that holds always or never, or a number moved by one. The command runs in
a clone: the working tree from which it is started is not changed.
"""

from __future__ import annotations

import argparse
import ast
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
ROOMS = ("transaction", "lake", "deadlock", "markers", "global_log", "sublogs", "formats")
COMMAND = "make test PYTEST_ARGS=-x"

TURNED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


class Mutant(NamedTuple):
    """A mutant: one replacement in one file.

    Attributes
    ----------
    path : str
        The file, from the root of the repository.
    line : int
        The first line of the replaced expression.
    start, end : int
        The part of the file that is replaced, in bytes.
    before, after : str
        The original expression, and the mutant's.
    """

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str


def mutants_of(path: str, source: bytes) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def of(node: ast.expr, after: str) -> Mutant:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        return Mutant(path, node.lineno, start, end, source[start:end].decode(), after)

    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                turned = TURNED[type(operator)]
                yield of(node, f"({ast.unparse(left)} {turned} {ast.unparse(right)})")
            case ast.BoolOp(values=[first, *rest]):
                joint = " and " if isinstance(node.op, ast.And) else " or "
                yield of(node, f"({joint.join(map(ast.unparse, rest))})")
                yield of(node, f"({ast.unparse(first)})")
            case ast.If(test=test) | ast.IfExp(test=test):
                yield of(test, "True")
                yield of(test, "False")
            case ast.Constant(value=bool()):
                continue
            case ast.Constant(value=int(value)):
                yield of(node, str(value + 1))


def draw(seed: int, count: int, rooms: Sequence[str], root: Path = ROOT) -> list[Mutant]:
    """Return ``count`` mutants, each module as likely as its size."""
    found = [
        mutant
        for room in rooms
        for path in sorted((root / "lakevilla" / room).rglob("*.py"))
        for mutant in mutants_of(str(path.relative_to(root)), path.read_bytes())
    ]
    return random.Random(seed).sample(found, count)


def apply(mutant: Mutant, root: Path) -> None:
    """Put a mutant into the files below ``root``.

    Raises
    ------
    ValueError
        The file is not the one that the mutant was drawn from.
    """
    path = root / mutant.path
    source = path.read_bytes()
    if source[mutant.start : mutant.end].decode() != mutant.before:
        raise ValueError(f"{mutant.path}:{mutant.line} has no {mutant.before!r} any more")
    path.write_bytes(source[: mutant.start] + mutant.after.encode() + source[mutant.end :])


def survives(mutant: Mutant, command: str, root: Path) -> bool:
    """Run the command with the mutant in place, and return whether it succeeded."""
    before = (root / mutant.path).read_bytes()
    apply(mutant, root)
    try:
        return subprocess.run(command, shell=True, cwd=root, check=False).returncode == 0
    finally:
        (root / mutant.path).write_bytes(before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each mutant with its outcome; return 1 if one survived."""
    parser = argparse.ArgumentParser(prog="python -m lakevilla_testing.mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--rooms", nargs="+", default=ROOMS, metavar="ROOM")
    parser.add_argument("--command", default=COMMAND, help="what a mutant is run with")
    parser.add_argument("--list", action="store_true", help="draw them and run nothing")
    given = parser.parse_args(arguments)
    drawn = draw(given.seed, given.count, given.rooms)
    if given.list:
        for mutant in drawn:
            print(_shown(mutant))
        return 0
    survivors = []
    with tempfile.TemporaryDirectory() as directory:
        clone = Path(directory) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        for mutant in drawn:
            alive = survives(mutant, given.command, clone)
            survivors += [mutant] * alive
            print(f"{'survived' if alive else 'found'}: {_shown(mutant)}", flush=True)
    print(f"{len(survivors)} of {len(drawn)} survived")
    return int(bool(survivors))


def _shown(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.line}: {mutant.before} -> {mutant.after}"


if __name__ == "__main__":
    sys.exit(main())

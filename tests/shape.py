"""The shape of the house, and the plainness of its language; ``make lint`` runs it.

``python tests/shape.py lakevilla``, from the root of the repository, prints each measure with its
goal, how many are beyond it, and the first of them. It fails where more are beyond a goal than
`ALLOWED` says; those numbers only shrink.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

#: How many may be beyond a goal today. The number of modules is printed: no feature is split or
#: merged for it.
ALLOWED: dict[str, int] = {"modules in all": 1}
_WORDS = """
told tells anew whoever whatever befall befallen apart nobody nobodys somebody moment moments life
lives lane lanes surroundings fitness stray strays stands standing lies looks looking whose
"""
#: Words with a private sense; of several parts where they are parts of a name.
DIALECT = frozenset(_WORDS.split())
PHRASES = (
    *("let_go", "letting_go", "put_off", "puts_off", "at_hand", "goes_along", "takes_along"),
    *("taken_along", "taken_in", "take_up", "taken_up"),
)
QUESTION = re.compile(r"^(What|Who|Whom|Whose|Whether|Where|How|That|Those|Which|Why|When)\b")
SUBJECTLESS = re.compile(
    r"^test_(what|who|whose|whoever|where|it|its|one_that|those|nobody|whatever|they|that|how"
    r"|there|others|one_who|no_one)(_|$)"
)
#: These two are one class each, of thin methods.
LONG_FILES = ("lake.py", "executor.py")
NEWCOMERS = ("CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Measure(NamedTuple):
    """One row of what is printed: a goal, and all that is beyond it."""

    what: str
    goal: int
    beyond: list[str]


def main(root: Path) -> int:
    """Print each measure; 1 if more is beyond a goal than is allowed."""
    failed = False
    for what, goal, beyond in measures(root):
        allowed = ALLOWED.get(what, 0)
        failed |= len(beyond) > allowed
        print(f"{what}: goal {goal}; beyond it: {len(beyond)}, allowed: {allowed}")
        for where in beyond if len(beyond) > allowed else beyond[:1]:
            print(f"   {where}")
    return int(failed)


def measures(root: Path) -> Iterator[Measure]:
    """Measure the library, its tests, and the pages at the root of the repository."""
    modules = [(path, *_read(path)) for path in sorted(root.rglob("*.py"))]
    rooms = [path for path in root.iterdir() if any(path.rglob("*.py"))]
    named = [path for path, _, _ in modules if path.name != "__init__.py"]
    yield _at_most("rooms directly below the package", 17, len(rooms))
    yield _at_most("modules in all", 420, len(named))
    yield Measure("packages with fewer than three modules", 0, list(_thin(root)))
    yield Measure(
        "files over 800 lines of code",
        0,
        [f"{p} {n}" for p, n, _ in modules if n > 800 and p.name not in LONG_FILES],
    )
    yield Measure(
        "functions over 60 lines",
        0,
        [
            f"{p}:{node.lineno} {node.name}"
            for p, _, t in modules
            for node in _functions(t)
            if _long(node)
        ],
    )
    yield Measure(
        "docstrings that begin with a question word",
        0,
        [f"{p}:{line} {text}" for p, _, t in modules for line, text in _questions(t)],
    )
    yield Measure("definitions and files named in dialect", 0, list(_in_dialect(modules)))
    yield Measure("tests named without a subject", 0, list(_subjectless(root.parent / "tests")))
    testing = root / "testing"
    yield Measure("test tools in the library's package", 0, [str(testing)] * testing.exists())
    for name, goal in (("README.md", 150), ("CHANGELOG.md", 150)):
        lines = len((root.parent / name).read_text().splitlines())
        yield _at_most(f"lines of {name}", goal, lines)
    missing = [name for name in NEWCOMERS if not (root.parent / name).exists()]
    yield Measure("files that a newcomer looks for", 0, missing)


def _at_most(what: str, goal: int, found: int) -> Measure:
    return Measure(what, goal, [str(found)] if found > goal else [])


def _read(path: Path) -> tuple[int, ast.Module]:
    """Return how many lines of code a module has, without docstrings and comments, and its tree."""
    text = path.read_text()
    tree = ast.parse(text)
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | Definition) and ast.get_docstring(node) is not None:
            first = node.body[0]
            docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    code = [line.strip() for number, line in lines if number not in docstrings]
    return sum(bool(line) and not line.startswith("#") for line in code), tree


def _thin(root: Path) -> Iterator[str]:
    """Yield the packages without packages of their own that have fewer than three modules."""
    modules = Counter(path.parent for path in root.rglob("*.py") if path.name != "__init__.py")
    for package in sorted({path.parent for path in root.rglob("*.py")}):
        has_packages = any(path.is_dir() and any(path.glob("*.py")) for path in package.iterdir())
        if modules[package] < 3 and not has_packages:
            yield str(package)


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def _long(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    docstring = ast.get_docstring(node) or ""
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    return length - len(docstring.splitlines()) > 60


def _questions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | Definition):
            docstring = ast.get_docstring(node)
            if docstring and QUESTION.match(docstring):
                yield getattr(node, "lineno", 1), docstring.splitlines()[0][:60]


def _in_dialect(modules: Iterable[tuple[Path, int, ast.Module]]) -> Iterator[str]:
    for path, _, tree in modules:
        if path.name != "__init__.py" and _is_odd(path.stem):
            yield str(path)
        for node in ast.walk(tree):
            if isinstance(node, Definition):
                is_class = isinstance(node, ast.ClassDef)
                words = "_".join(re.findall("[A-Z][a-z]+", node.name)) if is_class else node.name
                if _is_odd(words):
                    yield f"{path}:{node.lineno} {node.name}"


def _is_odd(name: str) -> bool:
    lower = name.lower()
    return bool(DIALECT & set(re.split(r"[_.]+", lower))) or any(p in lower for p in PHRASES)


def _subjectless(tests: Path) -> Iterator[str]:
    for path in sorted(tests.rglob("test_*.py")):
        for node in _functions(ast.parse(path.read_text())):
            if SUBJECTLESS.match(node.name):
                yield f"{path}:{node.lineno} {node.name}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""The shape of the library, and of the folders of its tests; ``make lint`` runs it.

``python tests/shape.py lakevilla``, from the root of the repository.

Each row has a limit, and how many are still beyond it: that number only shrinks.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

#: The limit of each row, and how many may be beyond it today.
ROWS = {
    "files in a folder": (15, 3),
    "lines of code in a file, without docstrings and blanks": (400, 1),
    "lines in a function, docstring apart": (60, 1),
    "fields of a class": (25, 1),
    "modules that define a public class of one name": (1, 0),
    "blocks of imports for types alone, of our own modules": (0, 0),
    "identifiers in dialect": (0, 0),
    "identifiers in dialect in tests and benchmarks": (0, 800),
}
#: What sentences may say and an identifier may not: it says what a thing is.
DIALECT = frozenset({"told", "gone", "anew", "whoever"})


def main(root: Path) -> int:
    """Print each row with what is beyond its limit; 1 if more is than may be."""
    failed = False
    for (what, (limit, allowed)), found in zip(ROWS.items(), measured(root), strict=True):
        beyond = sorted(((n, str(w)) for w, n in found.items() if n > limit), reverse=True)
        failed |= len(beyond) > allowed
        print(f"{what}: at most {limit}; beyond it: {len(beyond)}, allowed: {allowed}")
        for count, where in beyond if len(beyond) > allowed else ():
            print(f"   {count:5} {where}")
    return int(failed)


def measured(root: Path) -> list[Mapping[object, int]]:
    """What is counted, row by row."""
    files: Counter[object] = Counter()
    lines: dict[object, int] = {}
    functions: dict[object, int] = {}
    fields: dict[object, int] = {}
    classes: dict[object, list[Path]] = defaultdict(list)
    types: dict[object, int] = {}
    for path in sorted(root.rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text)
        files[path.parent] += path.name != "__init__.py"
        lines[path] = _lines_of_code(tree, text)
        if path != root / "__init__.py":  # which loads what it names when that is asked for
            types[path] = sum(_is_for_types(node) for node in tree.body)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions[f"{path}:{node.lineno}: {node.name}"] = _length(node)
            elif isinstance(node, ast.ClassDef):
                fields[f"{path}:{node.lineno}: {node.name}"] = sum(
                    isinstance(x, ast.AnnAssign) for x in node.body
                )
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(path)
    for path in (root.parent / "tests").rglob("*.py"):  # of tests nothing but how they are housed
        files[path.parent] += path.name != "__init__.py"
    names: dict[object, int] = {name: len(paths) for name, paths in classes.items()}
    return [
        files,
        lines,
        functions,
        fields,
        names,
        types,
        _dialect(root),
        _dialect(root.parent / "bench", root.parent / "tests"),
    ]


def _dialect(*folders: Path) -> Counter[object]:
    """Each use of a name in dialect. What a test is called is a sentence."""
    found: Counter[object] = Counter()
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        for number, name in _names(ast.parse(path.read_text())):
            if not name.startswith("test_") and DIALECT & set(name.lower().split("_")):
                found[f"{path}:{number}: {name}"] += 1
    return found


def _names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.keyword(arg=str(name)) | ast.MatchAs(name=str(name)):
                yield node.lineno, name


def _lines_of_code(tree: ast.Module, text: str) -> int:
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    numbered = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and number not in docstrings for number, line in numbered)


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if not ast.get_docstring(node):
        return length
    first = node.body[0]
    return length - ((first.end_lineno or first.lineno) - first.lineno + 1)


def _is_for_types(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.If)
        and "TYPE_CHECKING" in ast.unparse(node.test)
        and "lakevilla" in ast.unparse(node)
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""The shape of the library: ``python tests/shape.py lakevilla``; ``make lint`` runs it.

Each row has a limit, and how many are still beyond it: that number only shrinks.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

#: The limit of each row, and how many may be beyond it today.
ROWS = {
    "files in a folder": (15, 0),
    "lines of code in a file, without docstrings and blanks": (400, 10),
    "lines in a function, docstring apart": (60, 14),
    "fields of a class": (25, 1),
    "modules that define a public class of one name": (1, 24),
    "blocks of imports for types alone, of our own modules": (0, 6),
}


def main(root: Path) -> int:
    """Print each row with what is beyond its limit; 1 if more is than may be."""
    failed = False
    for (what, (limit, allowed)), found in zip(ROWS.items(), measured(root), strict=True):
        beyond = sorted(((n, str(w)) for w, n in found.items() if n > limit), reverse=True)
        failed |= len(beyond) > allowed
        print(f"{what}: at most {limit}; beyond it: {len(beyond)}, allowed: {allowed}")
        for count, where in beyond[: 8 if len(beyond) <= allowed else None]:
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
        types[path] = sum(_is_for_types(node) for node in tree.body)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                functions[f"{path}:{node.name}"] = _length(node)
            elif isinstance(node, ast.ClassDef):
                fields[f"{path}:{node.name}"] = sum(isinstance(x, ast.AnnAssign) for x in node.body)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(path)
    names: dict[object, int] = {name: len(paths) for name, paths in classes.items()}
    return [files, lines, functions, fields, names, types]


def _lines_of_code(tree: ast.Module, text: str) -> int:
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    numbered = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and number not in docstrings for number, line in numbered)


def _length(node: ast.FunctionDef) -> int:
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

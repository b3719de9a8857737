"""List the names and strings of modules from their source: each module is parsed once for all
tests.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Outline(NamedTuple):
    """The names that a module's statements define."""

    #: Functions, those within classes and functions too.
    functions: frozenset[str]
    #: The names in each class body; those of both classes if two have one name.
    classes: dict[str, frozenset[str]]
    #: The names defined in the module itself.
    top: frozenset[str]
    #: The names assigned in the module itself, or in one of its classes.
    assigned: frozenset[str]
    #: The lines in which docstrings begin.
    docstrings: frozenset[int]


@cache
def outline_of(path: Path) -> Outline:
    return outline(path.read_text())


def outline(source: str) -> Outline:
    module = ast.parse(source)
    functions, assigned, docstrings = set[str](), set[str](), set[int]()
    classes: dict[str, frozenset[str]] = {}
    for node in (module, *_statements(module.body)):
        if isinstance(node, ast.FunctionDef):
            functions.add(node.name)
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = classes.get(node.name, frozenset()) | set(names_in(node.body))
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            assigned |= {t.id for t in targets if isinstance(t, ast.Name) and t.col_offset <= 4}
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docstrings.add(first.value.lineno)
    return Outline(
        frozenset(functions),
        classes,
        frozenset(names_in(module.body)),
        frozenset(assigned),
        frozenset(docstrings),
    )


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield each statement of a body and below; expressions, most of a tree, define no names."""
    for node in body:
        yield node
        for block in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, block, []))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _statements(part.body)


def names_in(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that the statements of a body define."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))

"""The layers of the library: a module imports only what stands below it.

The first name is the lowest layer. An import under ``TYPE_CHECKING`` is for
the reader of a signature and runs nothing, so it is not held to the order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "lakevilla"

LAYERS = [
    "results",
    "errors",
    "clock",
    "ids",
    "settings",
    "scalars",
    "casting",
    "offsets",
    "frames",
    "store",
    "expressions",
    "formats",
    "engines.base",
    "sublogs",
    "markers",
    "deadlock",
    "global_log",
    "transaction",
    "engines",
    "api",
    "cli",
    "testing",
]

#: Where a package is imported, and why nowhere else.
ONLY_IN = {
    # One module knows the backend; everything else yields effects.
    "obstore": {"store.obstore_backend"},
    # An engine is the component that knows DuckDB; the demo and the
    # benchmark ask DuckDB's own Delta reader what others see.
    "duckdb": {"engines", "cli"},
    # LakeVilla reads and writes the log itself. The demo makes tables with
    # deltalake, and test tools read them with it, as other users of a lake do.
    "deltalake": {"cli", "testing"},
    # Metadata, manifests, transforms: pyiceberg's, behind the format. Test tools
    # read and write tables with it, as other users of a lake do.
    "pyiceberg": {"formats.iceberg", "testing"},
    "pyiceberg_core": {"engines.transforms"},
    # An engine, and the classes that a session registers as a data source.
    "pyspark": {"engines", "api.datasource"},
    "pandas": set(),
    "polars": set(),
    "boto3": {"store.obstore_backend"},
    "networkx": {"testing"},
    "typer": {"cli", "testing"},
    "rich": {"cli", "testing"},
}

MODULES = {
    path.relative_to(ROOT.parent)
    .with_suffix("")
    .as_posix()
    .replace("/", ".")
    .removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}


def under(module: str, place: str) -> bool:
    return module == f"lakevilla.{place}" or module.startswith(f"lakevilla.{place}.")


def layer(module: str) -> int:
    places = [place for place in LAYERS if under(module, place)]
    if module == "lakevilla":  # the package itself offers what the api has
        return LAYERS.index("api")
    assert places, f"{module} has no layer: give it one in this test"
    return LAYERS.index(max(places, key=len))


def imports(path: Path, module: str) -> Iterator[tuple[int, str]]:
    """Lines and modules imported, also inside functions, not for types alone."""
    is_package = path.name == "__init__.py"

    def walk(node: ast.AST) -> Iterator[tuple[int, str]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                yield from walk(child)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + (1 if is_package else 0)]
                base = ".".join([*parts, *([base] if base else [])])
            for alias in node.names:
                # `from lakevilla.store import base` imports a module, not a name.
                inner = f"{base}.{alias.name}"
                yield node.lineno, inner if inner in MODULES else base
        for child in ast.iter_child_nodes(node):
            yield from walk(child)

    yield from walk(ast.parse(path.read_text()))


def violations(module: str, path: Path) -> list[str]:
    found = []
    for line, imported in imports(path, module):
        if imported.partition(".")[0] == "lakevilla":
            # A package's own parts may import each other in any order.
            if layer(imported) > layer(module):
                found.append(f"{path}:{line}: {module} imports {imported}, which stands above it")
            continue
        package = imported.partition(".")[0]
        if package in ONLY_IN and not any(under(module, place) for place in ONLY_IN[package]):
            found.append(f"{path}:{line}: {module} imports {package}")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_stands_below_it(module: str) -> None:
    assert not violations(module, MODULES[module])


@pytest.mark.parametrize(
    ("module", "code", "bad"),
    [
        ("lakevilla.errors", "import lakevilla.store.base", True),
        ("lakevilla.store.base", "from lakevilla import api", True),
        ("lakevilla.store.base", "from ..transaction import core", True),
        ("lakevilla.store.base", "from . import effects", False),
        ("lakevilla.store.base", "def f():\n    import obstore", True),
        ("lakevilla.store.backends.object_store", "import obstore.auth.boto3", False),
        (
            "lakevilla.transaction.state.transaction",
            "from lakevilla.engines.base import Engine",
            False,
        ),
        (
            "lakevilla.transaction.state.transaction",
            "from lakevilla.engines.duckdb import DuckDBEngine",
            True,
        ),
        ("lakevilla.transaction.state.transaction", "import duckdb", True),
        ("lakevilla.formats.base", "from lakevilla.expressions.tree import Expr", False),
        ("lakevilla.expressions.tree", "from lakevilla.formats.base import Layout", True),
        (
            "lakevilla.errors",
            "if TYPE_CHECKING:\n    from lakevilla.results import CommitResult",
            False,
        ),
        ("lakevilla.api", "import deltalake", True),
    ],
)
def test_the_walk_finds_imports_that_run_upward(
    tmp_path: Path, module: str, code: str, bad: bool
) -> None:
    path = tmp_path / "module.py"
    path.write_text(code)
    assert bool(violations(module, path)) == bad

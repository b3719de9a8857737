"""Each public name is in the reference, tells what it takes and raises, and has an example."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla import dbapi
from lakevilla.opentelemetry import listener

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
ON_SPARK = {"register_data_source"}


#: Besides what ``lakevilla`` itself has.
IN_MODULES = {
    "opentelemetry.listener": listener,
    "dbapi.connect": dbapi.connect,
    "dbapi.Connection": dbapi.Connection,
    "dbapi.Cursor": dbapi.Cursor,
    "dbapi.Error": dbapi.Error,
    "dbapi.TypeGroup": dbapi.TypeGroup,
}


def run_examples(name: str, begin: Callable[[str], dict[str, Any]]) -> None:
    """Each docstring's begin with what ``begin`` makes for it."""
    value = IN_MODULES[name] if name in IN_MODULES else getattr(lv, name)
    # What a class has from one that is not public is its own to whoever reads the reference.
    own = [one for one in getattr(value, "__mro__", ()) if one.__name__ not in lv.__all__]
    found = [
        test
        for one in [value, *(one for one in own if one.__module__.startswith("lakevilla."))]
        for test in doctest.DocTestFinder().find(one, name, globs={"lv": lv, "warnings": warnings})
    ]
    examples = [example for test in found for example in test.examples]
    assert examples, f"lakevilla.{name} has no example in its docstring"
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    for test in (test for test in found if test.examples):
        test.globs.update(begin(test.name))
        runner.run(test, out=report.append)
    assert not runner.summarize(verbose=False).failed, "".join(report)


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", [*sorted(set(lv.__all__) - ON_SPARK), *IN_MODULES])
def test_the_example_of_a_public_name_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(docstring: str) -> dict[str, Any]:
        """What docs/reference/index.md says that the examples begin with."""
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        place.mkdir()
        monkeypatch.chdir(place)
        if docstring in ("connect", "Lake"):  # these begin with nothing
            return {}
        lake = lv.connect("warehouse")
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        lake.create_table("orders", [{"id": 1, "sku": "tea"}])
        return {"lake": lake}

    run_examples(name, begin)


@pytest.mark.parametrize("name", sorted(ON_SPARK))
def test_the_example_of_a_public_name_runs_on_spark(
    name: str, tmp_path: Path, spark: object
) -> None:
    lake = lv.connect(str(tmp_path / "warehouse"))
    lake.create_table("stock", [{"sku": "tea", "qty": 5}])
    run_examples(name, lambda _: {"lake": lake, "spark": spark})


def test_the_reference_has_every_public_name_once() -> None:
    pages = "\n".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))
    named = re.findall(r"^::: lakevilla\.(\w+)$", pages, re.MULTILINE)
    assert sorted(named) == sorted(lv.__all__)


def shown() -> list[tuple[str, Any]]:
    """The functions and methods that the reference shows, by their names."""
    found = []
    blocks = re.compile(
        r'^::: ([\w.]+)$(?:\n +options:\n +members:((?:\n +- [\w"]+)*))?', re.MULTILINE
    )
    for page in sorted(REFERENCE.glob("*.md")):
        for path, members in blocks.findall(page.read_text()):
            module, _, name = path.rpartition(".")
            value = getattr(importlib.import_module(module), name)
            if inspect.isfunction(value):
                found.append((name, value))
            found += [(f"{name}.{m}", getattr(value, m)) for m in re.findall(r'- "?(\w+)', members)]
    return found


@pytest.mark.parametrize(
    "kind", [lv.Lake, lv.Transaction, lv.Snapshot, lv.Table, dbapi.Connection, dbapi.Cursor]
)
def test_the_reference_shows_all_that_users_call(kind: type) -> None:
    in_reference = {name for name, _ in shown() if name.startswith(f"{kind.__name__}.")}
    for name, value in inspect.getmembers(kind):
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            assert f"{kind.__name__}.{name}" in in_reference


@pytest.mark.parametrize(("name", "function"), [pytest.param(*x, id=x[0]) for x in shown()])
def test_reference_entries_describe_each_of_their_parameters(name: str, function: Any) -> None:
    text = inspect.getdoc(function) or ""
    if not inspect.isfunction(function):
        return  # a property: its type tells
    assert text, f"{name} says nothing"
    parameters = [p for p in inspect.signature(function).parameters if p not in ("self", "unknown")]
    section = re.search(
        r"^Parameters\n-+\n(.*?)(?=\n\n\w+\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL
    )
    entries = re.findall(r"^(\S.*?) ?(?::|$)", section[1] if section else "", re.MULTILINE)
    named = {part.strip(" *") for entry in entries for part in entry.split(",")}
    missing = [p for p in parameters if p not in named]
    assert not missing, f"{name} does not tell of {missing}"

"""Check that each public name is in the reference, documents its parameters and errors, and has an
example.
"""

from __future__ import annotations

import ast
import dataclasses
import doctest
import importlib
import inspect
import re
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import lakevilla as lv
from lakevilla import dbapi
from lakevilla.api.merge import MergeBuilder
from lakevilla.api.spark.merging import SparkMergeBuilder
from lakevilla.api.spark_table import SparkOptimizeBuilder
from lakevilla.opentelemetry import listener

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
ON_SPARK = {"SparkTable", "register_data_source"}


#: Names in addition to those of ``lakevilla`` itself.
IN_MODULES = {
    "opentelemetry.listener": listener,
    "dbapi.connect": dbapi.connect,
    "dbapi.Connection": dbapi.Connection,
    "dbapi.Cursor": dbapi.Cursor,
    "dbapi.Error": dbapi.Error,
    "dbapi.TypeGroup": dbapi.TypeGroup,
}


def run_examples(name: str, begin: Callable[[str], dict[str, Any]]) -> None:
    """Run the examples of each docstring, after the set-up that ``begin`` makes for it."""
    value = IN_MODULES[name] if name in IN_MODULES else getattr(lv, name)
    # In the reference, a member that a class inherits from a private class counts as its own.
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
        """Make the objects with which the examples begin, as docs/reference/index.md lists them."""
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        place.mkdir()
        monkeypatch.chdir(place)
        if docstring in ("connect", "Lake"):  # these examples begin with nothing
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
    def begin(docstring: str) -> dict[str, Any]:
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        lake = lv.connect(str(place), spark=spark)  # type: ignore[call-overload]
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        return {"lake": lake, "spark": spark}

    run_examples(name, begin)


def test_the_reference_has_every_public_name_once() -> None:
    pages = "\n".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))
    named = re.findall(r"^::: lakevilla\.(\w+)$", pages, re.MULTILINE)
    assert sorted(named) == sorted(lv.__all__)


Entry = tuple[str, Any, list[str]]


def entries() -> list[Entry]:
    """Return the entries of the pages: name, object, and the members that have entries of their
    own.
    """
    found = []
    blocks = re.compile(
        r'^::: ([\w.]+)$(?:\n +options:\n +members:((?:\n +- [\w"]+)*))?', re.MULTILINE
    )
    for page in sorted(REFERENCE.glob("*.md")):
        for path, members in blocks.findall(page.read_text()):
            module, _, name = path.rpartition(".")
            value = getattr(importlib.import_module(module), name)
            found.append((name, value, re.findall(r'- "?(\w+)', members)))
    return found


def shown() -> list[tuple[str, Any]]:
    """Return the functions and methods that the reference shows, by name."""
    found = []
    for name, value, members in entries():
        if inspect.isfunction(value):
            found.append((name, value))
        found += [(f"{name}.{member}", getattr(value, member)) for member in members]
    return found


CLASSES = [entry for entry in entries() if inspect.isclass(entry[1])]


def section(text: str, title: str) -> dict[str, str]:
    """Return the entries of a section of a docstring: the description of each, by name."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=\n\n\S[^\n]*\n-+\n|\Z)", text, re.M | re.S)
    described: dict[str, str] = {}
    names: list[str] = []
    for line in found[1].splitlines() if found else ():
        if line and not line[0].isspace():
            names = [name.strip(" *") for name in line.partition(" :")[0].split(",")]
            described |= dict.fromkeys(names, "")
        else:
            described |= {name: described[name] + line.strip() for name in names}
    return described


def set_by_init(kind: type) -> set[str]:
    """Return the attributes that the source of ``__init__`` sets."""
    init = kind.__dict__.get("__init__")
    if init is None or dataclasses.is_dataclass(kind):
        return set()
    nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(init))))
    stored = (n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return {n.attr for n in stored if isinstance(n.value, ast.Name) and n.value.id == "self"}


def attributes(kind: type) -> set[str]:
    """Return the public attributes of a class, and of its bases in LakeVilla."""
    found: set[str] = set()
    for one in kind.__mro__:
        if one.__module__.startswith("lakevilla"):
            found |= one.__dict__.keys() | inspect.get_annotations(one).keys() | set_by_init(one)
    return {
        name
        for name in found
        if not name.startswith("_")
        and not inspect.isroutine(value := inspect.getattr_static(kind, name, None))
        and not inspect.isclass(value)
    }


def undescribed(kind: type, members: list[str]) -> list[str]:
    """The public attributes of a class that its page does not describe.

    An attribute is described where it is a member with a docstring, or by the class's section
    "Attributes", or by that of a base that has an entry in the reference.
    """
    in_reference = {value for _, value, _ in CLASSES} | {kind}
    described: dict[str, str] = {}
    for one in kind.__mro__:
        if one in in_reference:
            described = section(inspect.getdoc(one) or "", "Attributes") | described
    for member in members:
        value = inspect.getattr_static(kind, member)
        described[member] = inspect.getdoc(value) or "" if isinstance(value, property) else member
    return sorted(one for one in attributes(kind) if not described.get(one))


@pytest.mark.parametrize(
    "kind",
    [
        lv.Lake,
        lv.Transaction,
        lv.Session,
        lv.Snapshot,
        lv.Table,
        lv.Diff,
        lv.MergeConflict,
        MergeBuilder,
        SparkMergeBuilder,
        SparkOptimizeBuilder,
        lv.SparkTable,
        dbapi.Connection,
        dbapi.Cursor,
    ],
)
def test_the_reference_shows_every_name_that_users_call(kind: type) -> None:
    (members,) = [members for _, value, members in CLASSES if value is kind]
    described = section(inspect.getdoc(kind) or "", "Attributes")
    for name, value in inspect.getmembers(kind):
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            assert name in members or name in described, f"{kind.__name__}.{name}"


@pytest.mark.parametrize(("name", "function"), [pytest.param(*x, id=x[0]) for x in shown()])
def test_reference_entries_describe_each_of_their_parameters(name: str, function: Any) -> None:
    text = inspect.getdoc(function) or ""
    assert text, f"{name} says nothing"
    if not inspect.isfunction(function):
        return  # a property: its type documents it
    parameters = [p for p in inspect.signature(function).parameters if p not in ("self", "unknown")]
    described = section(text, "Parameters")
    missing = [p for p in parameters if not described.get(p)]
    assert not missing, f"{name} does not describe {missing}"


@pytest.mark.parametrize(
    ("name", "kind", "members"), [pytest.param(*entry, id=entry[0]) for entry in CLASSES]
)
def test_reference_entries_describe_each_of_their_attributes(
    name: str, kind: type, members: list[str]
) -> None:
    missing = undescribed(kind, members)
    assert not missing, f"{name} does not describe {missing}"
    unknown = section(inspect.getdoc(kind) or "", "Attributes").keys() - attributes(kind)
    assert not unknown, f"{name} describes {sorted(unknown)}, which it does not have"


class Base:
    """A base class that the reference does not have.

    Attributes
    ----------
    below : int
        Not seen by a reader of the reference.
    """

    below: int = 0


# Pretend that it is a class of LakeVilla.
Base.__module__ = "lakevilla.of_a_test"


class HalfDescribed(Base):
    """A class of which half of the attributes are described.

    Attributes
    ----------
    named : int
        Described.
    bare : int
    """

    kind: ClassVar[str] = ""

    def __init__(self) -> None:
        self.named = self.bare = self.silent = 1
        self._own = 1

    @property
    def seen(self) -> int:
        """Described."""
        return 1

    @property
    def mute(self) -> int:
        return 1

    def method(self) -> None: ...


HalfDescribed.__module__ = "lakevilla.of_a_test"


def test_the_check_finds_attributes_without_a_description() -> None:
    assert undescribed(HalfDescribed, ["seen", "mute", "method"]) == [
        "bare",
        "below",
        "kind",
        "mute",
        "silent",
    ]
    assert "seen" in undescribed(HalfDescribed, []), "its docstring is on no page"

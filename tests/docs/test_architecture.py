"""Check ARCHITECTURE.md: its functions, rooms and words exist, and its picture shows
the imports.
"""

from __future__ import annotations

import ast
import re
import tomllib
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import pytest

from lakevilla.store.base import ABSENT, Refused, Stored, Token
from lakevilla.store.effects import Put
from tests.support.code import names_in

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "lakevilla"
PAGE = ROOT / "ARCHITECTURE.md"
PICTURE = ROOT / "docs/images/architecture.svg"

TEXT = PAGE.read_text()
#: `file`: `name`, `name`
CITED = re.compile(r"`([\w./-]+\.py)`:\s+(`[\w.]+`(?:,\s+`[\w.]+`)*)")
_PATH = re.compile(r"`((?:lakevilla|lakevilla_testing|tests|docs)/[\w./-]*)`")
_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
_ROOM = re.compile(r"(?m)^\| `(\w+)` \|")
#: The headings of the sections that have seven steps each.
SEVEN = ("The life of a commit", "A branch merge", "An SQL UPDATE")


def citations(text: str) -> list[tuple[str, str]]:
    return [
        (path, name) for path, names in CITED.findall(text) for name in re.findall(r"[\w.]+", names)
    ]


@cache
def defined_in(path: Path) -> frozenset[str]:
    """Return the names that a file defines: its own, and those of its classes behind a dot."""
    tree = ast.parse(path.read_text())
    found = set(names_in(tree.body))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for name in names_in(node.body)}
    return frozenset(found)


def is_there(path: str, name: str) -> bool:
    return (ROOT / path).is_file() and name in defined_in(ROOT / path)


def test_each_function_is_in_the_file_that_is_cited_for_it() -> None:
    cited = citations(TEXT)
    assert len(cited) > 100, "the pattern finds nothing any more"
    assert not [f"{path}: {name}" for path, name in cited if not is_there(path, name)]


def test_the_check_finds_a_citation_of_a_missing_function_or_file() -> None:
    commit = "lakevilla/transaction/commit/commit.py"
    found = citations(f"`{commit}`: `commit`,\n  `nowhere`; `lakevilla/gone.py`: `commit`")
    assert [is_there(*one) for one in found] == [True, False, False]


def test_files_and_links_of_the_page_exist() -> None:
    named = {*_PATH.findall(TEXT), *_LINK.findall(TEXT)}
    assert "docs/images/architecture.svg" in named
    assert not [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("heading", SEVEN)
def test_each_of_seven_steps_cites_functions(heading: str) -> None:
    part = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    steps = re.split(r"(?m)^(?=\d\. \*\*)", part)[1:]
    assert [step[0] for step in steps] == list("1234567")
    assert all(citations(step) for step in steps)


def test_the_rooms_are_the_packages_in_their_order() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    stack = next(one for one in contracts["contracts"] if one["name"] == "the stack")
    packages = [name for name in stack["layers"] if (LIBRARY / name).is_dir()]
    assert _ROOM.findall(TEXT) == packages
    assert set(packages) == {path.parent.name for path in LIBRARY.glob("*/__init__.py")}


def test_the_picture_has_each_room_and_only_downward_arrows() -> None:
    tops, arrows = drawn()
    assert set(tops) == set(_ROOM.findall(TEXT))
    assert not [arrow for arrow in arrows if tops[arrow[0]] >= tops[arrow[1]]]


def test_arrows_of_the_picture_are_imports_and_a_path_of_arrows_leads_along_each_import() -> None:
    arrows = drawn()[1]
    imported = imports()
    assert not arrows - imported
    assert not [pair for pair in sorted(imported) if not leads(arrows, *pair)]


def drawn() -> tuple[dict[str, float], set[tuple[str, str]]]:
    """Return the top of each room in the picture, and the picture's arrows."""
    svg = "{http://www.w3.org/2000/svg}"
    tree = ET.parse(PICTURE)
    rooms = {
        group.attrib["id"]: float(group.find(f"{svg}rect").attrib["y"])
        for group in tree.iter(f"{svg}g")
        if group.attrib["class"] != "root"
    }
    arrows = {
        (path.attrib["data-from"], path.attrib["data-to"])
        for path in tree.iter(f"{svg}path")
        if "data-from" in path.attrib
    }
    return rooms, arrows


def imports() -> set[tuple[str, str]]:
    """Return each pair of rooms of which the first imports the second."""
    rooms = set(_ROOM.findall(TEXT))
    found = set()
    for room in rooms:
        for path in (LIBRARY / room).rglob("*.py"):
            text = path.read_text()
            names = re.findall(r"(?m)^\s*(?:from|import) lakevilla\.(\w+)", text)
            names += re.findall(r"(?m)^\s*from lakevilla import (\w+)", text)
            found |= {(room, name) for name in names if name in rooms and name != room}
    return found


def leads(arrows: set[tuple[str, str]], start: str, end: str) -> bool:
    return start == end or any(leads(arrows, to, end) for of, to in arrows if of == start)


def test_the_program_of_the_page_yields_its_effect() -> None:
    names: dict[str, object] = {}
    exec(re.findall(r"(?s)```python\n(.*?)```", TEXT)[0], names)
    create = names["create"]
    for outcome, result in ((Stored(Token("1")), True), (Refused(None), False)):
        program = create("key", b"{}")
        assert next(program) == Put("key", b"{}", ABSENT)
        with pytest.raises(StopIteration) as end:
            program.send(outcome)
        assert end.value.value is result


def test_words_are_in_alphabetical_order() -> None:
    words = re.findall(r"(?m)^- \*\*(.+?)\*\*:", TEXT.partition("\n## Words\n")[2])
    assert len(words) > 50
    assert words == sorted(set(words), key=str.lower)

"""Citations in code and docs exist: notes, sections of the design, hazards, files and tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.code import outline_of

#: Parsing the whole code takes seconds, so one worker runs all of these tests.
pytestmark = pytest.mark.xdist_group("code")

ROOT = Path(__file__).parents[2]
DESIGN = ROOT / "docs" / "design"

_NUMBERS = r"\d+(?:(?:,| and| or| to) \d+)*"
#: The patterns of citations, by kind; each captures the numbers that follow.
CITED = {
    "note": re.compile(rf"\b[Nn]otes? ({_NUMBERS})"),
    "hazard": re.compile(rf"\b[Hh]azards? ({_NUMBERS})"),
    "section": re.compile(rf"(?<!RFC 9562, )\b[Ss]ections? ({_NUMBERS})"),
}
#: Other spellings of the same citations, which no test would check.
ODD = re.compile(
    r"\b[Nn]otes? 0\d|\((?:see )?0\d{3}[);,]|\bsections? \d+(?: and \d+)? of the design|"
    r"\bdesign sections? \d|\b(?i:note|hazard)s?(?:-| ?#)\d|"
    r"\b(?i:note|hazard|section)s? \d+ ?[&/] ?\d"
)
#: Citations of a section without its document, which is clear only in the pages of the design.
WITHIN_THE_DESIGN = re.compile(r"(?<!design, )(?<!RFC 9562, )\b[Ss]ections? \d")
_PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+/?)(?:::(\w+))?`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@cache
def text_of(path: Path) -> str:
    """Return a file's text with its lines joined, since a citation may span two lines."""
    return re.sub(r"\s*\n\s*(?:#:? ?)?", " ", path.read_text())


@cache
def near_numbers(path: Path) -> str:
    """Return the text around a file's numbers, where citations are: a fifth of the file."""
    return re.sub(r"(\D{30})\D{20,}(\D{30})", r"\1\n\2", text_of(path))


def sources() -> list[Path]:
    """Return every file that a person writes."""
    found = [ROOT / "README.md", ROOT / "Makefile", ROOT / "pyproject.toml"]
    for folder in ("lakevilla", "lakevilla_testing", "dbt_lakevilla", "tests", "bench", "examples"):
        found += (ROOT / folder).rglob("*.py")
    found += (ROOT / "docs").rglob("*.md")
    return sorted(path for path in found if path != Path(__file__))


PAGES = [path for path in sources() if path.suffix == ".md"]


def numbers(cited: str) -> Iterator[int]:
    """Parse ``9, 11 and 14 to 16`` as numbers."""
    last = 0
    for joint, number in re.findall(r"(,| and| or| to|) ?(\d+)", cited):
        yield from range(last + 1, int(number)) if joint == " to" else ()
        last = int(number)
        yield last


def headings() -> dict[str, set[int]]:
    """Return the headings that can be cited."""
    notes = {
        int(path.name[:4])
        for path in DESIGN.glob("[0-9]*.md")
        if re.match(rf"# {int(path.name[:4])}\. \S", path.read_text())
    }
    return {
        "note": notes,
        "section": numbered(DESIGN / "0000-design.md", "##"),
        "hazard": numbered(DESIGN / "hazards.md", "###"),
    }


def numbered(page: Path, depth: str) -> set[int]:
    return {int(number) for number in re.findall(rf"(?m)^{depth} (\d+)\. \S", page.read_text())}


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("kind", CITED)
def test_every_cited_note_section_and_hazard_has_a_heading(kind: str) -> None:
    there = headings()[kind]
    cited = {
        (shown(path), number)
        for path in sources()
        for match in CITED[kind].finditer(near_numbers(path))
        for number in numbers(match[1])
    }
    assert len(cited) > 10, "the pattern finds nothing any more"
    assert not {where for where in cited if where[1] not in there}


def test_notes_sections_and_hazards_are_numbered_without_a_gap() -> None:
    for kind, there in headings().items():
        assert there == set(range(min(there), max(there) + 1)), kind
    files = {int(path.name[:4]) for path in DESIGN.glob("[0-9]*.md")}
    assert files == headings()["note"], "the first line of each is `# <number>. <title>`"


def test_citations_are_written_in_one_spelling() -> None:
    odd = {
        (shown(path), match[0]) for path in sources() for match in ODD.finditer(near_numbers(path))
    } | {
        (shown(path), match[0])
        for path in sources()
        if path.parent != DESIGN
        for match in WITHIN_THE_DESIGN.finditer(near_numbers(path))
    }
    assert not odd, "write `note 9`, `design, section 9`, `hazard 9`"


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_paths_and_links_on_a_page_have_a_target(page: Path) -> None:
    wrong = [path for path, name in _PATH.findall(text_of(page)) if not is_there(path, name)]
    wrong += [link for link in _LINK.findall(text_of(page)) if not leads_somewhere(page, link)]
    assert not wrong


def is_there(path: str, name: str) -> bool:
    """Return whether a path exists in this repository; true if it does not look like such a
    path.
    """
    top, _, _ = path.partition("/")
    folders = ("lakevilla", "lakevilla_testing", "tests", "bench", "docs", "examples")
    if top not in folders and not path.endswith(".py"):
        return True
    found = [base / path for base in (ROOT, ROOT / "lakevilla") if (base / path).exists()]
    return bool(found) and (not name or name in outline_of(found[0]).functions)


def leads_somewhere(page: Path, link: str) -> bool:
    if "://" in link:
        return True
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return False
    return not anchor or anchor in anchors_of(target)


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    lines = re.findall(r"(?m)^#+ (.+)$", page.read_text())
    plain = [re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines]
    return frozenset(plain)


def test_files_named_in_code_exist() -> None:
    named = {
        (shown(path), name)
        for path in sources()
        if path.suffix == ".py"
        for name in re.findall(r"docs/[\w/.-]+\.md\b", path.read_text())
    }
    assert named
    assert not {(path, name) for path, name in named if not (ROOT / name).exists()}


def hazards() -> dict[int, str]:
    parts = re.split(r"(?m)^### (\d+)\. ", (DESIGN / "hazards.md").read_text())
    return {int(number): text for number, text in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize("number", hazards())
def test_each_hazard_names_a_test_that_exists(number: int) -> None:
    held = re.findall(r"(?m)^- `(tests/[\w/.]+\.py)::(test_\w+)`$", hazards()[number])
    assert held
    assert not [test for test in held if not is_there(*test)]


def test_planted_bugs_named_on_pages_exist() -> None:
    files = (ROOT / "lakevilla_testing" / "planted").glob("*.py")
    there = frozenset[str]().union(*(outline_of(path).functions for path in files))
    lists = [
        re.findall(r"[Pp]lanted(?: bugs?)?:? ((?:`\w+`(?:, | and )?)+)", text_of(p)) for p in PAGES
    ]
    named = set(re.findall(r"`(\w+)`", " ".join(names for found in lists for names in found)))
    assert len(named) > 10
    assert not named - there


NAMED = [*DESIGN.glob("*.md"), *(ROOT / "docs" / f"{page}.md" for page in ("paper", "protocol"))]
_NAME = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\([^`]*\))?`")
#: `two_words`, `TwoWords`: a word in such a spelling is a name of the code, or of stored data.
_SPELLED_AS_CODE = re.compile(r"\w+_\w+|(?:[A-Z][a-z]+){2,}")


@pytest.mark.parametrize("page", NAMED, ids=shown)
def test_code_names_on_a_page_exist_in_the_code(page: Path) -> None:
    names = {name for name in _NAME.findall(text_of(page)) if not name.endswith(".py")}
    wrong = [name for name in names if any(w not in words() for w in spelled_as_code(name))]
    pairs = {tuple(name.rsplit(".", 2)[-2:]) for name in names if "." in name}
    wrong += [
        f"{owner}.{name}"
        for owner, name in pairs
        if (owner in members() and (owner[0].isupper() or "_" in name))
        and name not in members()[owner]
    ]
    assert not wrong


def spelled_as_code(name: str) -> list[str]:
    return [part for part in name.split(".") if _SPELLED_AS_CODE.fullmatch(part)]


#: Characters that separate words, like a space.
_APART = dict.fromkeys((ord(c) for c in map(chr, range(128)) if not (c.isalnum() or c == "_")), " ")


@cache
def words() -> frozenset[str]:
    """Return every word of the code."""
    code = [path for path in sources() if path.suffix == ".py"]
    return frozenset(
        word for path in code for word in set(path.read_text().translate(_APART).split())
    )


@cache
def members() -> dict[str, set[str]]:
    """Return the names of attributes and functions of each class and module of the library."""
    found: dict[str, set[str]] = {}
    packages = (ROOT / "lakevilla", ROOT / "lakevilla_testing")
    for path in (path for package in packages for path in package.rglob("*.py")):
        found.setdefault(path.stem, set()).update(outline_of(path).top)
        for name, names in outline_of(path).classes.items():
            found.setdefault(name, set()).update(names)
    return found

"""Check that docs/upstream.md describes each workaround in the code, and that page and file name
each other.

``test_pages`` runs the programs of the page.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/upstream.md"
PACKAGES = ("lakevilla", "lakevilla_testing")

TITLE = re.compile(r"^### (.+)$", re.MULTILINE)
FILE = re.compile(r"`((?:lakevilla|lakevilla_testing)/[\w/]+\.py)`")
REFERENCE = re.compile(r'docs/upstream\.md, "([^"]+)"')
#: A line that continues in the next line, in a comment or a docstring.
WRAPPED = re.compile(r"\n\s*(?:#:? ?)?")


def entries() -> dict[str, set[str]]:
    """Return the files that each entry of the page names, by the entry's title."""
    _, *parts = TITLE.split(PAGE.read_text())
    return {
        title: set(FILE.findall(text)) for title, text in zip(parts[::2], parts[1::2], strict=True)
    }


def references() -> dict[str, set[str]]:
    """Return the files that refer to an entry, by the entry's title."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for title in REFERENCE.findall(WRAPPED.sub(" ", path.read_text())):
                found[title].add(str(path.relative_to(ROOT)))
    return found


def test_each_reference_of_the_code_names_an_entry() -> None:
    missing = {title: files for title, files in references().items() if title not in entries()}
    assert not missing, "docs/upstream.md has no entry of this title"


def test_each_entry_names_a_file_that_refers_to_it() -> None:
    referring = references()
    for title, files in entries().items():
        assert files, f"{title}: the entry names no file of the workaround"
        strangers = files - referring.get(title, set())
        assert not strangers, f"{title}: {strangers} do not refer to the entry, or do not exist"

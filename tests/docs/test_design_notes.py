"""Check that each design note has a header, and that all that the header cites exists.

The header is a list below the title. Its fields, in this order:

- ``Status``: ``holds``; or ``in part replaced by note 49, in section "Streams"``; or ``replaced by
  note 49``. The section is a heading of this note, or bold words that begin a paragraph of it.
- ``Rule``: the rule of the protocol, or the decision, that the note argues. Its first sentence is
  the one in the table of notes in design, section 14.
- ``Tests``: the tests that hold the rule, as files, folders or ``file::function``.
- ``Planted bugs`` (where there are any): bugs of ``lakevilla_testing/planted`` that break the rule.
- ``Models`` (where there are any): the models of ``models/`` that have rules of the note.
- ``Code``: the files or folders that carry the rule out.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from models.__main__ import rules_of_models

ROOT = Path(__file__).parents[2]
DESIGN = ROOT / "docs" / "design"
NOTES = {int(path.name[:4]): path for path in sorted(DESIGN.glob("[0-9]*.md"))}

FIELDS = ("Status", "Rule", "Tests", "Planted bugs", "Models", "Code")
OPTIONAL = {"Planted bugs", "Models"}
#: By note, the models that have rules of it.
MODELS_OF: dict[int, list[str]] = {}
for _note, _model in sorted({(note, model) for note, _, model, _ in rules_of_models()}):
    MODELS_OF.setdefault(_note, []).append(f"models/{_model}.py")
#: The title, and the list below it.
TOP = re.compile(r"# \d+\. \S.*\n\n((?:- \*\*.*\n(?: {2}\S.*\n)*)+)\n")
FIELD = re.compile(r"(?m)^- \*\*([\w ]+):\*\* (.*(?:\n {2}\S.*)*)")
STATUS = re.compile(
    r"holds|replaced by note (?P<whole>\d+)|"
    r'in part replaced(?P<parts>(?:(?:, and)? by note \d+, in section "[^"]+")+)'
)
PART = re.compile(r'note (\d+), in section "([^"]+)"')
CITED = re.compile(r"`([^`]+)`")


def header(text: str) -> dict[str, str]:
    """Return the fields of a note's header, each as one line."""
    top = TOP.match(text)
    if top is None:
        return {}
    return {name: " ".join(value.split()) for name, value in FIELD.findall(top[1])}


@cache
def of_note(number: int) -> dict[str, str]:
    return header(NOTES[number].read_text())


@cache
def functions_in(path: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


@cache
def planted() -> frozenset[str]:
    """Return the names of all planted bugs: the functions that ``planted`` decorates."""
    found = set()
    for path in (ROOT / "lakevilla_testing" / "planted").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(one, ast.Call) and ast.unparse(one.func) == "planted"
                for one in node.decorator_list
            ):
                found.add(node.name)
    return frozenset(found)


def wrong_in(fields: dict[str, str], number: int, body: str) -> list[str]:
    """Return what is wrong with a header."""
    wrong = [f"no {name}" for name in FIELDS if name not in fields and name not in OPTIONAL]
    wrong += [f"unknown field {name}" for name in fields if name not in FIELDS]
    if wrong:
        return wrong
    if list(fields) != [name for name in FIELDS if name in fields]:
        wrong.append("the fields are in another order")
    wrong += wrong_status(fields["Status"], number, body)
    if not re.match(r"[A-Z`].*[.]$", fields["Rule"]):
        wrong.append("Rule is no sentence")
    wrong += [one for one in cited(fields, "Tests") if not is_test(one)]
    wrong += [one for one in cited(fields, "Planted bugs") if one not in planted()]
    wrong += [one for one in cited(fields, "Code") if not (ROOT / one).exists()]
    wrong += [one for one in cited(fields, "Models") if one not in MODELS_OF.get(number, ())]
    for name in ("Tests", "Planted bugs", "Models", "Code"):
        if name in fields and not re.fullmatch(r"`[^`]+`(, `[^`]+`)*", fields[name]):
            wrong.append(f"{name} is no list of names in backticks")
    return wrong


def wrong_status(status: str, number: int, body: str) -> list[str]:
    found = STATUS.fullmatch(status)
    if found is None:
        return [f"Status: {status}"]
    by = [int(found["whole"])] if found["whole"] else []
    wrong = []
    for note, section in PART.findall(found["parts"] or ""):
        by.append(int(note))
        heading, words = rf"#+ {re.escape(section)}", rf"(?:- )?\*{{1,2}}{re.escape(section)}"
        if not re.search(rf"(?m)^(?:{heading}$|{words}[.:*,])", body):
            wrong.append(f"no section {section}")
    return wrong + [f"no note {one}" for one in by if one == number or one not in NOTES]


def cited(fields: dict[str, str], name: str) -> list[str]:
    return CITED.findall(fields.get(name, ""))


def is_test(name: str) -> bool:
    path, _, function = name.partition("::")
    file = ROOT / path
    if not path.startswith("tests/") or not file.exists():
        return False
    return function in functions_in(file) if function else file.is_dir() or file.suffix == ".py"


@pytest.mark.parametrize("number", MODELS_OF)
def test_a_note_whose_rules_are_in_models_names_all_of_them(number: int) -> None:
    assert cited(of_note(number), "Models") == MODELS_OF[number]


@pytest.mark.parametrize("number", NOTES)
def test_a_note_has_a_header_and_everything_that_it_cites_exists(number: int) -> None:
    fields = of_note(number)
    assert fields, "a note begins with its title, an empty line, and the list of its header"
    assert not wrong_in(fields, number, NOTES[number].read_text())


def row(number: int) -> str:
    """Return the row of a note in the table of notes."""
    fields = of_note(number)
    title = NOTES[number].read_text().partition("\n")[0].partition(". ")[2]
    rule = re.split(r"(?<=\.) (?=[A-Z`])", fields["Rule"])[0]
    status = fields["Status"]
    if status.startswith("in part"):
        by = dict.fromkeys(f"note {one}" for one, _ in PART.findall(status))
        status = f"in part replaced by {' and '.join(by)}"
    return f"| {number} | [{title}]({NOTES[number].name}) | {rule} | {status} |"


def test_the_design_lists_each_note_with_its_rule() -> None:
    listed = re.findall(r"(?m)^\| \d+ \| \[.*\|$", NOTES[0].read_text())
    assert listed == [row(number) for number in NOTES if number]


_GOOD = {
    "Status": "holds",
    "Rule": "A rule.",
    "Tests": "`tests/docs/test_design_notes.py`",
    "Planted bugs": "`no_read_back`",
    "Code": "`lakevilla/ids.py`",
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Status", "replaced"),
        ("Status", "replaced by note 1"),
        ("Status", f"replaced by note {max(NOTES) + 1}"),
        ("Status", 'in part replaced by note 2, in section "Not there"'),
        ("Rule", "a word"),
        ("Tests", "`tests/docs/test_nothing.py`"),
        ("Tests", "`tests/docs/test_design_notes.py::test_nothing`"),
        ("Planted bugs", "`nothing`"),
        ("Code", "`lakevilla/nothing.py`"),
        ("Code", "none"),
        ("Models", "`models/head.py`"),
    ],
)
def test_a_wrong_header_fails(field: str, value: str) -> None:
    body = "## There\n"
    assert not wrong_in(_GOOD, 1, body)
    assert not wrong_in(
        _GOOD | {"Status": 'in part replaced by note 2, in section "There"'}, 1, body
    )
    assert wrong_in(_GOOD | {field: value}, 1, body)


def test_a_header_must_be_complete_and_below_the_title() -> None:
    assert not header("# 1. Views\n\nText.\n")
    assert header("# 1. Views\n\n- **Status:** holds\n- **Rule:** A\n  rule.\n\nText.\n") == {
        "Status": "holds",
        "Rule": "A rule.",
    }
    assert wrong_in({"Status": "holds"}, 1, "") == ["no Rule", "no Tests", "no Code"]

"""The models hold their invariants, and the checker finds each planted flaw (``make models``)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakevilla_testing.planted.every import PLANTED
from models.__main__ import MODELS, lines_of, main, rules
from models.checker import STUCK, explore, walk
from tests.support.search import WHOLE, how_many

README = Path(__file__).parents[3] / "models" / "README.md"
#: The flaws of each model, and the rules whose lack breaks nothing.
FLAWS = [(name, flaw) for name, model in MODELS.items() for flaw in model.flaws]
COSTS = [(name, flaw) for name, model in MODELS.items() for flaw in model.costs]
WALKS = how_many(20, whole=1_000, soak=50_000)


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", MODELS)
def test_a_protocol_holds_its_invariants_in_every_order_of_steps(name: str) -> None:
    quick = None if WHOLE else MODELS[name].quick
    found = explore((quick or MODELS[name].make)(""))
    assert found.violation is None, found.path
    listed = re.search(rf"(?m)^\| \[`{name}`\]\(.*\| ([\d,]+) \|$", README.read_text())
    assert listed is not None
    assert quick or listed[1] == f"{found.states:,}", "models/README.md has the number"


@pytest.mark.cases(None)
@pytest.mark.parametrize(("name", "flaw"), FLAWS)
def test_a_rule_that_is_left_out_breaks_an_invariant(name: str, flaw: str) -> None:
    assert explore(MODELS[name].make(flaw)).violation is not None


@pytest.mark.parametrize(("name", "flaw"), COSTS)
def test_a_rule_that_only_saves_work_breaks_no_invariant(name: str, flaw: str) -> None:
    quick = None if WHOLE else MODELS[name].quick
    assert explore((quick or MODELS[name].make)(flaw)).violation is None


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.large])
def test_drawn_runs_of_larger_scenarios_break_no_invariant(name: str) -> None:
    large = MODELS[name].large
    assert large is not None
    model, steps = large(), 0
    for seed in range(WALKS):
        path = []
        for step, state in walk(model, random.Random(seed)):
            path.append(step)
            assert model.violation(state) is None, (seed, path)
        steps += len(path)
    assert steps > 5 * WALKS


@pytest.mark.cases(None)
@pytest.mark.parametrize(("name", "flaw"), [*FLAWS, *COSTS])
def test_a_rule_has_a_line_in_its_model(name: str, flaw: str) -> None:
    assert lines_of(name, flaw)


def test_the_table_of_rules_is_that_of_the_models() -> None:
    text = README.read_text()
    assert "\n".join(rules()) in text, "python -m models --rules prints it"


def test_a_flaw_with_the_name_of_a_planted_bug_is_of_a_note_that_names_the_bug() -> None:
    notes = README.parents[1] / "docs" / "design"
    same = 0
    for name, flaw in FLAWS:
        rule = MODELS[name].flaws[flaw]
        cited = re.match(r"note (\d+), ", rule)
        number = int(cited[1]) if cited else MODELS[name].note
        (note,) = notes.glob(f"{number:04}-*.md")
        if flaw in PLANTED:
            same += 1
            assert f"`{flaw}`" in note.read_text(), (flaw, note.name)
    assert same > 10


class Counter:
    """Count to five, where three is wrong, by steps of one or two."""

    def initial(self) -> int:
        return 0

    def steps(self, state: int) -> Iterator[tuple[str, int]]:
        if state < 5:
            yield "one", state + 1
            yield "two", state + 2

    def violation(self, state: int) -> str | None:
        return "three" if state == 3 else None


class Stopping(Counter):
    """The same, where nothing is wrong, and five must be reached."""

    def violation(self, state: int) -> str | None:
        return None

    def has_ended(self, state: object) -> bool:
        return state == 5


def test_the_checker_returns_a_shortest_path_to_a_violation() -> None:
    found = explore(Counter())
    assert (found.violation, len(found.path)) == ("three", 2)


def test_the_checker_finds_a_state_from_which_no_run_can_end() -> None:
    found = explore(Stopping())
    assert found.violation == STUCK
    assert found.path[-1] == "two", "from four to six"


def test_an_unknown_model_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["combin"]) == 2
    listed = f"there is no model combin; there are: {', '.join(MODELS)}"
    assert listed in capsys.readouterr().out

"""The models hold their invariants, and the checker finds each planted flaw (``make models``)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from models.__main__ import main
from models.checker import explore
from models.combine import COSTS, FLAWS, Combine
from models.given import FLAWS as GIVEN_FLAWS
from models.given import Given
from models.given_branch import FLAWS as BRANCH_FLAWS
from models.given_branch import GivenBranch
from models.given_making import FLAWS as MAKING_FLAWS
from models.given_making import GivenMaking
from tests.support.search import how_many

FAULTS = how_many(0, whole=2)


def test_combined_commits_hold_their_invariants_in_every_order_of_steps() -> None:
    found = explore(Combine(faults=FAULTS))
    assert found.violation is None, found.path
    assert found.states == {0: 7_076, 2: 40_307}[FAULTS]


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_rule_of_combined_commits_that_is_left_out_breaks_an_invariant(flaw: str) -> None:
    assert explore(Combine(flaw)).violation is not None


@pytest.mark.parametrize("name", COSTS)
def test_a_rule_that_only_saves_work_breaks_no_invariant(name: str) -> None:
    assert explore(Combine(name, faults=FAULTS)).violation is None


def test_given_commits_hold_their_invariants_in_every_order_of_steps() -> None:
    found = explore(Given())
    assert found.violation is None, found.path
    assert found.states == 12_548


@pytest.mark.parametrize("flaw", GIVEN_FLAWS)
def test_a_rule_of_given_commits_that_is_left_out_breaks_an_invariant(flaw: str) -> None:
    assert explore(Given(flaw)).violation is not None


def test_given_commits_on_a_branch_hold_their_invariants_in_every_order_of_steps() -> None:
    found = explore(GivenBranch())
    assert found.violation is None, found.path
    assert found.states == 1_095


@pytest.mark.parametrize("flaw", BRANCH_FLAWS)
def test_a_rule_of_given_commits_on_a_branch_that_is_left_out_breaks_an_invariant(
    flaw: str,
) -> None:
    assert explore(GivenBranch(flaw)).violation is not None


def test_tables_that_clients_make_hold_their_invariants_in_every_order_of_steps() -> None:
    found = explore(GivenMaking())
    assert found.violation is None, found.path
    assert found.states == 677


@pytest.mark.parametrize("flaw", MAKING_FLAWS)
def test_a_part_of_the_rule_of_made_tables_that_is_left_out_breaks_an_invariant(flaw: str) -> None:
    assert explore(GivenMaking(flaw)).violation is not None


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


def test_the_checker_returns_a_shortest_path_to_a_violation() -> None:
    found = explore(Counter())
    assert (found.violation, len(found.path)) == ("three", 2)


def test_an_unknown_model_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["combin"]) == 2
    assert (
        "there is no model combin; there are: combine, given, given_branch"
        in capsys.readouterr().out
    )

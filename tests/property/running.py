"""Run one seed: check a table by its predicates; make a failure smaller and report it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from tests.property.built import build
from tests.property.checks import Case, Mismatch
from tests.property.plans import Plan, Widen, draw
from tests.property.predicates import Part, Predicates, quoted

#: The number of predicates over one table.
EACH = 20
#: This many of them are checked against commits of other clients, which change the table.
BESIDE = 4

#: The number of events of each kind.
Tally = Counter[str]


def run(seed: int, tally: Tally, each: int = EACH, beside: int = BESIDE, **options: Any) -> None:
    """Check one table; raise ``Failure`` if a check fails."""
    plan = draw(seed)
    with _lake(plan, seed, options) as case:
        _guarded(seed, plan, None, case.whole)
        tally["tables"] += 1
        rng = Random(f"predicates {seed}")
        for number in range(each):
            part = Predicates(case.schema, case.values, rng, telling(case)).draw()
            check(seed, plan, part, case, tally, number if number >= each - beside else None)


def telling(case: Case) -> frozenset[str]:
    """Return the columns with a history: of another type once, or used for partitioning."""
    built = case.built
    ids = {id_ for id_, _ in built.plan.partition}
    ids |= {step.id for step in built.plan.steps if isinstance(step, Widen)}
    return frozenset(quoted(col.name) for col in built.model.cols if col.id in ids)


def check(seed: int, plan: Plan, part: Part, case: Case, tally: Tally, beside: int | None) -> None:
    def act() -> None:
        truth = case.truth(part)
        if truth is None:
            tally["refused"] += 1
            return
        tally["cases"] += 1
        tally["raising"] += bool(truth.raising)
        tally["matching"] += bool(truth.true)
        case.reading(part, truth)
        others = [case.unpruned]
        if plan.written:
            others += [case.deleting, case.updating]
        if case.built.on_spark:  # where each predicate takes long
            others = [others[tally["cases"] % len(others)]]
        for other in others:
            other(part, truth)
        if beside is not None:
            rng = Random(f"beside {seed} {beside}")
            observed = beside % 2 or not plan.written
            (case.conflicting if observed else case.redoing)(part, truth, rng)

    _guarded(seed, plan, part, act)


class Failure(AssertionError):
    """A failed check of a seed, with its table and predicate."""

    def __init__(self, seed: int, plan: Plan, part: Part | None, cause: BaseException) -> None:
        self.seed, self.plan, self.part, self.cause = seed, plan, part, cause
        where = "" if part is None else f"\nwhere {part.render()}"
        super().__init__(
            f"seed {seed}: {type(cause).__name__}: {cause}{where}\n"
            f"replay, and make smaller: python -m tests.property {seed}"
        )

    @property
    def kind(self) -> str:
        return self.cause.kind if isinstance(self.cause, Mismatch) else type(self.cause).__name__


def _guarded(seed: int, plan: Plan, part: Part | None, act: Any) -> None:
    try:
        act()
    except Failure:
        raise
    except Exception as error:
        raise Failure(seed, plan, part, error) from error


class _lake:
    """The table of a plan in a directory of its own, opened as a case."""

    def __init__(self, plan: Plan, seed: int, options: dict[str, Any]) -> None:
        self.plan, self.seed, self.options = plan, seed, options

    def __enter__(self) -> Case:
        self._directory = tempfile.TemporaryDirectory(prefix="lakevilla-rows-")
        self._built = build(self.plan, Path(self._directory.name), **self.options)
        try:
            self._case = Case(self._built.__enter__())
        except Exception as error:
            self._directory.cleanup()
            raise Failure(self.seed, self.plan, None, error) from error
        return self._case

    def __exit__(self, *error: object) -> None:
        self._case.close()
        self._built.__exit__(None, None, None)
        self._directory.cleanup()


# -- making smaller -----------------------------------------------------------------------


def shrunk(failure: Failure, **options: Any) -> Failure:
    """Return the same failure with fewer steps, rows and parts."""
    best = failure
    progress = True
    while progress:
        progress = False
        for plan, part in _smaller(best.plan, best.part):
            again = _again(best, plan, part, options)
            if again is not None:
                best, progress = again, True
                break
    return best


def _smaller(plan: Plan, part: Part | None) -> Iterator[tuple[Plan, Part | None]]:
    if part is not None:
        for smaller in part.smaller():
            yield plan, smaller
    for fewer in plan.smaller():
        yield fewer, part


def _again(
    failure: Failure, plan: Plan, part: Part | None, options: dict[str, Any]
) -> Failure | None:
    try:
        with _lake(plan, failure.seed, options) as case:
            _guarded(failure.seed, plan, None, case.whole)
            if part is not None:
                for beside in (None, 0, 1):
                    check(failure.seed, plan, part, case, Counter(), beside)
    except Failure as found:
        return (
            found if found.kind == failure.kind and (found.part is None) == (part is None) else None
        )
    except Exception:
        return None  # the plan is invalid now
    return None


def reported(failure: Failure) -> str:
    """Return the failure's report: the table's history, and the difference."""
    plan = failure.plan
    lines = [f"{plan.format} table, mapped: {plan.mapped}, partition: {plan.partition}"]
    lines += [f"  {col}" for col in plan.cols]
    lines += [f"  {replace(step)}" for step in plan.steps]
    return "\n".join([*lines, str(failure)])

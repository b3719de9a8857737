"""Parameters of benchmarks: a name, what it means, and its value in a whole and in a quick run."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

Value = int | float | str


class WrongParameter(ValueError):
    """A parameter that a benchmark does not have, or a value that it can't take."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter.

    ``whole`` is its value at the scale of the paper, or what one machine bears of it; ``quick``
    its value with ``--quick``. A value with commas is a list: each is measured.
    """

    name: str
    whole: Value
    quick: Value
    help: str
    least: float | None = None


def settled(
    parameters: Sequence[Parameter], given: Mapping[str, str], *, quick: bool
) -> dict[str, Value]:
    """The value of each parameter: what was given, else its default."""
    known = {parameter.name: parameter for parameter in parameters}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f", did you mean {near[0]}?" if near else "."
            raise WrongParameter(f"no parameter {name!r}{hint} There are: {', '.join(known)}")
    return {
        name: _value(parameter, given[name])
        if name in given
        else (parameter.quick if quick else parameter.whole)
        for name, parameter in known.items()
    }


def _value(parameter: Parameter, text: str) -> Value:
    kind = type(parameter.whole)
    try:
        value = kind(text)
    except ValueError as error:
        raise WrongParameter(
            f"{parameter.name}={text!r} is no {'number' if kind is float else 'whole number'}: "
            f"{parameter.help}"
        ) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise WrongParameter(f"{parameter.name}={text} is no number to go by: {parameter.help}")
    if "" not in (parameter.whole, parameter.quick) and not listed(text):
        raise WrongParameter(f"{parameter.name} is empty: {parameter.help}")
    if parameter.least is not None and not float(value) >= parameter.least:
        raise WrongParameter(
            f"{parameter.name}={text} is too small: {parameter.least:g} or more ({parameter.help})"
        )
    return value


def listed(value: Value) -> list[str]:
    """The parts of a value that is a list."""
    return [part.strip() for part in str(value).split(",") if part.strip()]


def chosen(name: str, value: Value, known: Collection[str]) -> list[str]:
    """The parts of a parameter's value that is a list of names, all of them known."""
    parts = listed(value)
    for part in parts:
        check_known(name, part, known)
    return parts


def check_known(name: str, part: str, known: Collection[str]) -> None:
    """Refuse a name that there is not in a parameter's value."""
    if part not in known:
        raise WrongParameter(f"{name}: {part!r} is none of {', '.join(known)}")


def numbers(value: Value, least: int = 1) -> list[int]:
    """The whole numbers of a value that is a list of them."""
    try:
        found = [int(part) for part in listed(value)]
    except ValueError as error:
        raise WrongParameter(f"{value!r} is no list of whole numbers such as 1,8,64") from error
    if any(number < least for number in found):
        raise WrongParameter(f"{value!r} has to be a list of whole numbers from {least} on")
    return found

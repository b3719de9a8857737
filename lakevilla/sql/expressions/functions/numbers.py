"""Functions of real numbers, as IEEE 754 and Java have them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lakevilla.sql.expressions.functions.declaring import Function, Resolution, WrongTypes
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.expressions.types import is_numeric


def _doubles(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if not all(is_numeric(type_) or type_ == "void" for type_ in types):
        raise WrongTypes("numbers")
    return ["double"] * len(types), "double"


_LAST_PLACE = "to within one unit in the last place"

NUMBERS: dict[str, Function] = {
    "power": Function("power(a, b)", "double", f"also pow; {_LAST_PLACE}; NaN where IEEE 754 has "
                      "none; NaN for 1 or -1 to a power that is infinite or NaN; a to the 0 is 1",
                      2, 2, _doubles),
    "exp": Function("exp(a)", "double", _LAST_PLACE, 1, 1, _doubles),
    "ln": Function("ln(a)", "double", f"NULL for a <= 0; {_LAST_PLACE}", 1, 1, _doubles),
    "log10": Function("log10(a)", "double", "NULL for a <= 0; to within two units in the last "
                      "place", 1, 1, _doubles),
    "sqrt": Function("sqrt(a)", "double", "NaN for a < 0; exactly rounded", 1, 1, _doubles),
    "sign": Function("sign(a)", "double", "-1, 0 or 1; NaN for NaN; also signum", 1, 1, _doubles),
}  # fmt: skip


def _power(a: float, b: float) -> float:
    if b != b or (math.isinf(b) and abs(a) == 1):
        return math.nan
    try:
        return math.pow(a, b)
    except OverflowError:
        pass
    except ValueError:  # a zero to a negative power, or the root of a negative number
        if a != 0:
            return math.nan
    odd = b == math.floor(b) and math.fmod(b, 2) != 0
    return math.copysign(math.inf, a) if odd else math.inf


def _exp(a: float) -> float:
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


def _log(log: Callable[[float], float]) -> Callable[[float], float | None]:
    return lambda a: None if a <= 0 else log(a)


def _sign(a: float) -> float:
    return a if a != a else float((a > 0) - (a < 0))


#: What each means for operands that are not NULL.
NUMBER_MEANINGS: dict[str, Callable[..., Any]] = {
    "power": _power,
    "exp": _exp,
    "ln": _log(math.log),
    "log10": _log(math.log10),
    "sqrt": lambda a: math.nan if a < 0 else math.sqrt(a),
    "sign": _sign,
}

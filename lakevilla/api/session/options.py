"""The settings of a session as SQL spells them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from lakevilla.api.arguments import check_number
from lakevilla.api.begin import begin_transaction, check_timeout
from lakevilla.engines.limits import LIMITS, StatementLimits
from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown
from lakevilla.sql.statements.script.control import SETTINGS
from lakevilla.transaction.state.features import Feature

__all__ = [
    "DEFAULTS",
    "checked_limits",
    "limits_of",
    "refuse_higher",
    "refuse_of_spark",
    "setting",
    "spelled",
]

#: How SET takes a limit away, as SHOW SETTINGS spells it.
_NO_LIMIT = ("none", "null", "default")

#: What a session's transactions begin with if nothing else is said.
DEFAULTS: Mapping[str, object] = {
    name: one.default
    for name, one in inspect.signature(begin_transaction).parameters.items()
    if name in SETTINGS
} | dict.fromkeys(LIMITS)


def spelled(value: object) -> str:
    """A setting's value as SET takes it."""
    if isinstance(value, Feature):
        return ", ".join(str(one.name) for one in value) or "NONE"
    return "default" if value is None else str(value)


def setting(name: str, text: str) -> object:
    """The value of a setting as ``Lake.transaction`` takes it.

    Raises
    ------
    InvalidOperation
        It is none that the setting can have.
    """
    plain = text.strip()
    if len(plain) > 1 and plain[0] == plain[-1] and plain[0] in "'\"":
        plain = plain[1:-1]
    if name == "features":
        return features_of(plain)
    if name in LIMITS:
        return None if plain.lower() in _NO_LIMIT else checked(name, _number(name, plain))
    if name == "slack":
        return check_number(name, _number(name, plain))
    if name in ("wait_timeout_seconds", "idle_timeout_seconds"):
        seconds = _number(name, plain)
        check_timeout(name, seconds)
        return seconds
    word = plain.lower()
    known = SETTINGS[name]
    for one in known:
        if word.replace(" ", "-").replace("_", "-") == one.replace("_", "-"):
            return one
    raise InvalidOperation(f"{name} is {' or '.join(known)}, not {plain!r}")


def checked(name: str, value: object) -> object:
    """A limit of statements.

    Raises
    ------
    InvalidOperation
        It is no number, or none that leaves room for anything.
    """
    if value is None:
        return None
    if name == "timeout_seconds":
        check_timeout(name, value)
        if value == 0:
            raise InvalidOperation("timeout_seconds is more than 0; leave it out for no limit")
        return None if value == math.inf else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidOperation(f"{name} is a whole number, 0 or more, not {shown(value)}")
    return value


def checked_limits(dialect: str, given: Mapping[str, object]) -> dict[str, object]:
    """StatementLimits as arguments give them, without those that are None.

    Raises
    ------
    InvalidOperation
        One has a wrong value, or the statements are Spark's.
    """
    found = {name: checked(name, one) for name, one in given.items() if one is not None}
    refuse_of_spark(dialect, *found)
    return found


def limits_of(options: Mapping[str, Any]) -> StatementLimits:
    """What a session's options say of how much a statement may cost."""
    return StatementLimits(**{name: options.get(name) for name in LIMITS})


def refuse_higher(name: str, value: Any, begun_with: Mapping[str, Any]) -> None:
    """Refuse to lift a limit that the session was opened with: its statements may be a stranger's.

    Raises
    ------
    InvalidOperation
    """
    most = begun_with.get(name) if name in LIMITS else None
    if most is not None and (value is None or value > most):
        raise InvalidOperation(
            f"the session was opened with {name} = {most}, and SET can only lower it: open another "
            "session for more"
        )


def refuse_of_spark(dialect: str, *names: str) -> None:
    """Refuse limits of statements that Spark runs: rows come when a DataFrame is used.

    Raises
    ------
    InvalidOperation
    """
    given = [name for name in names if name in LIMITS]
    if given and dialect != "duckdb":
        raise InvalidOperation(
            f"Spark's statements take no {' or '.join(given)}: limit the rows of its frames, and "
            "set spark.driver.maxResultSize in its session",
            reason="unsupported",
        )


def features_of(text: str) -> Feature:
    """``R, CT, I`` in any order; ``NONE`` for none of them.

    Raises
    ------
    InvalidOperation
        A name is none of a feature.
    """
    found = Feature.NONE
    for word in text.replace("|", ",").replace("+", ",").split(","):
        name = word.strip().upper().removeprefix("FEATURE.").removeprefix("LV.FEATURE.")
        if not name or name not in Feature.__members__:
            near = get_close_matches(name, Feature.__members__, 1)
            meant = f": did you mean {near[0]}?" if near else ""
            raise InvalidOperation(
                f"features are R, CT and I, or NONE, not {word.strip()!r}{meant}"
            )
        found |= Feature[name]
    return found


def _number(name: str, text: str) -> int | float:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise InvalidOperation(f"{name} is a number, not {text!r}") from None

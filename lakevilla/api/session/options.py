"""The settings of a session as SQL spells them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from difflib import get_close_matches

from lakevilla.api.arguments import check_number
from lakevilla.api.begin import begin_transaction, check_timeout
from lakevilla.engines.sql.script.control import SETTINGS
from lakevilla.errors import InvalidOperation
from lakevilla.transaction.state.features import Feature

__all__ = ["DEFAULTS", "setting", "spelled"]

#: What a session's transactions begin with if nothing else is said.
DEFAULTS: Mapping[str, object] = {
    name: one.default
    for name, one in inspect.signature(begin_transaction).parameters.items()
    if name in SETTINGS
}


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

"""The kinds of histories that a campaign runs, each by what draws its plans."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from shlex import quote
from typing import get_args

from lakevilla_testing.histories.plan import (
    LakeFormat,
    Plan,
    draw_chained,
    draw_followed,
    draw_formats,
    draw_given,
    draw_hot,
    draw_kept,
    draw_marked,
    draw_mix,
    draw_refreshed,
    draw_reshaped,
    draw_told,
    draw_version_3,
)

#: What draws the plan of a seed, by the name of the kind.
KINDS: dict[str, Callable[[int, LakeFormat], Plan]] = {
    "all": draw_formats,
    "chained": draw_chained,
    "followed": draw_followed,
    "given": lambda seed, formats: draw_given(seed, "mixed" if formats == "delta" else formats),
    "hot": draw_hot,
    "kept": draw_kept,
    "marked": draw_marked,
    "mix": lambda seed, formats: draw_mix(seed),
    "redefined": partial(draw_refreshed, kind="redefine"),
    "refreshed": draw_refreshed,
    "reshaped": draw_reshaped,
    "told": draw_told,
    "version 3": lambda seed, formats: draw_version_3(seed),
}


def plan_in_turn(seed: int) -> Plan:
    """Return the plan of a seed where all kinds take turns, each with each format."""
    formats = get_args(LakeFormat)
    turn, kind = divmod(seed, len(KINDS))
    return list(KINDS.values())[kind](seed, formats[turn % len(formats)])


def how_to_replay(plan: Plan) -> str:
    """Return the command that shows a history again."""
    kind = next((k for k, drawn in KINDS.items() if drawn(plan.seed, plan.formats) == plan), None)
    if kind is None:
        return f"campaign.replay({plan.seed}, plan={plan})"
    options = "" if plan.formats == "delta" else f" --formats {plan.formats}"
    if kind != "all":
        options += f" --kind {quote(kind)}"
    return f"python -m lakevilla_testing replay {plan.seed}{options}"

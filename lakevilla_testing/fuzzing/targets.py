"""The calls that a search guided by coverage makes, each with sound inputs to begin with.

An input is what the call itself gets: an object's body, a text, or a request as a JSON document. A
mutation damages it as `damage` and `texts` do, or changes bytes; an input that reaches new code is
kept, and is changed further, so that damages add up.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import cache, partial

import pyarrow as pa

from lakevilla_testing.fuzzing import damage, objects, parsers, texts
from lakevilla_testing.fuzzing.choices import Choices
from lakevilla_testing.fuzzing.faults import Fault, faults_of
from lakevilla_testing.fuzzing.lakes import KINDS, lake_of
from lakevilla_testing.fuzzing.requests import request_targets
from lakevilla_testing.fuzzing.statements import changed_text, statement_targets, text_of
from lakevilla_testing.fuzzing.stored import Parser
from lakevilla_testing.fuzzing.target import Target
from lakevilla_testing.fuzzing.verbs import verbs_of


@cache
def targets() -> Mapping[str, Target]:
    """Return the targets by name."""
    return {
        **_of_parsers(),
        **_of_lakes(),
        **_of_texts(),
        **request_targets(),
        **statement_targets(),
    }


# -------------------- parsers of objects


def _of_parsers() -> dict[str, Target]:
    """Return a target for each parser; one that reads objects of several lakes gets them all."""
    groups: dict[str, list[Parser]] = {}
    for name, one in parsers.parsers().items():
        alike = name.partition(" (")[0]
        groups.setdefault(alike if alike in parsers.STORED else name, []).append(one)
    return {f"parser {name}": _of_parser(name, group) for name, group in groups.items()}


def _of_parser(name: str, group: Sequence[Parser]) -> Target:
    one = group[0]
    bodies = [each.body for each in group]

    def judge(body: bytes) -> list[Fault]:
        return faults_of(name, partial(one.parse, body))[0]

    def change(body: bytes, choices: Choices) -> bytes:
        return _damaged_again(one.key, body, choices, bodies)

    return Target(bodies, judge, change)


def _damaged_again(key: str, body: bytes, choices: Choices, others: list[bytes]) -> bytes:
    """Return a body with more damage; one that has lost its form gets a bit flipped."""
    try:
        return damage.damaged(key, body, choices, others).body
    except (ValueError, LookupError, OSError, RecursionError, pa.ArrowException, zlib.error):
        return damage.flipped(body, choices)


# -------------------- verbs on lakes

#: The bytes before a body: the kind of the object, whether it keeps its name, and the verb.
_HEADER = 3


def _of_lakes() -> dict[str, Target]:
    return {f"lake {kind}": _of_lake(kind) for kind in KINDS}


def _of_lake(lake: str) -> Target:
    sound = lake_of(lake)
    keys: dict[str, list[str]] = {kind: [] for kind in objects.kinds_in(sound)}
    for key in sorted(sound):
        keys[objects.kind_of(key)].append(key)
    firsts = [same[0] for same in keys.values()]
    names = list(verbs_of())

    def judge(data: bytes) -> list[Fault]:
        header = Choices(data[:_HEADER])
        key, keeps_name = header.one_of(firsts), header.happens(4)
        made = damage.Damaged(data[_HEADER:], "changed")
        verbs = (header.one_of(names),)
        return objects.judge(objects.with_body(lake, key, made, verbs, keeps_name=keeps_name))

    def change(data: bytes, choices: Choices) -> bytes:
        if choices.happens(4):
            at = choices.number(_HEADER)
            return data[:at] + choices.taken(1).ljust(1, b"\0") + data[at + 1 :]
        key = Choices(data).one_of(firsts)
        others = [sound[one] for one in keys[objects.kind_of(key)]]
        return data[:_HEADER] + _damaged_again(key, data[_HEADER:], choices, others)

    seeds = [
        bytes([number % len(firsts), number % 4, number % len(names)])
        + sound[firsts[number % len(firsts)]]
        for number in range(max(len(firsts), len(names)))
    ]
    return Target(seeds, judge, change)


# -------------------- texts


def _of_texts() -> dict[str, Target]:
    return {f"text {call}": _of_text(call) for call in texts.CALLS}


def _of_text(call: str) -> Target:
    def judge(data: bytes) -> list[Fault]:
        # A statement may ask for any amount of work: its time and memory say nothing.
        found = texts.judge(texts.Given(call, text_of(data)))
        return [one for one in found if one.what.startswith("a raw")]

    return Target([one.encode() for one in texts.sound_for(call)], judge, changed_text)

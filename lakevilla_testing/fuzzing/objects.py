"""One object of a lake is damaged, verbs run, and what they do is judged.

An input is a list of decisions (`choices`): which lake, object, damage and verbs. A verb must end
well or raise a ``LakeVillaError``, soon and without much memory; and where the damage can be told
from the bytes, it must not return other rows.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from blake3 import blake3

from lakevilla.store.cached import is_content, names_content
from lakevilla_testing.fuzzing import damage
from lakevilla_testing.fuzzing.choices import Choices
from lakevilla_testing.fuzzing.faults import Fault, faults_of
from lakevilla_testing.fuzzing.lakes import KINDS, Objects, lake_of, opened, saved_in, store_of
from lakevilla_testing.fuzzing.verbs import rows, verbs_of

#: How many verbs run on a drawn lake, after a read.
VERBS = 3
_HASH = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Input:
    """A damaged lake, and the verbs that are to run on it."""

    lake: str
    key: str
    how: str
    objects: Objects = field(repr=False)
    verbs: tuple[str, ...]


def input_of(data: bytes) -> Input:
    """Return the input that some bytes decide."""
    choices = Choices(data)
    lake = choices.one_of(KINDS)
    sound = lake_of(lake)
    names = list(verbs_of())
    verbs = ("read", *(choices.one_of(names) for _ in range(VERBS)))
    kind = choices.one_of(kinds_in(sound))
    key = choices.one_of([one for one in sorted(sound) if kind_of(one) == kind])
    others = [body for one, body in sorted(sound.items()) if kind_of(one) == kind and one != key]
    keeps_name = choices.happens(4)
    made = damage.damaged(key, sound[key], choices, others or [b""])
    return with_body(lake, key, made, verbs, keeps_name=keeps_name)


def with_body(
    lake: str, key: str, made: damage.Damaged, verbs: tuple[str, ...], *, keeps_name: bool
) -> Input:
    """Return the input in which the object at ``key`` has another body.

    Unless it ``keeps_name``, an object whose name has its hash gets the name of the new body.
    """
    sound, how = lake_of(lake), made.how
    # Objects with one content have one hash, and are damaged alike.
    objects: Objects = {
        one: made.body if body == sound[key] else body for one, body in sound.items()
    }
    if not keeps_name and is_content(key, sound[key]):
        objects = renamed(objects, sound)
        how = f"{how}, named so"
    return Input(lake, key, how, objects, verbs)


def kind_of(key: str) -> str:
    """Return the kind of object that has this key."""
    return re.sub(r"[0-9a-f]{8,}(-[0-9a-f]+)*|\d+", "*", re.sub(r"^[tu]/(data/)?(g=\d/)?", "", key))


def kinds_in(objects: Objects) -> list[str]:
    """Return the kinds of a lake's objects, in order."""
    return sorted({kind_of(key) for key in objects})


def renamed(objects: Objects, sound: Objects) -> Objects:
    """Return the lake with the hash of each changed object in its name, wherever it is named."""
    hashed = {_hash(body) for key, body in sound.items() if is_content(key, body)}
    made = dict(objects)
    while changed := _misnamed(made, hashed):
        old, new = changed
        hashed = hashed - {old} | {new}
        made = {
            key.replace(old, new): body.replace(old.encode(), new.encode())
            for key, body in made.items()
        }
    return made


def _misnamed(objects: Objects, hashed: Collection[str]) -> tuple[str, str] | None:
    """Return the hash in an object's name, and that of its body, if the two differ."""
    for key, body in objects.items():
        named = [one for one in _HASH.findall(key) if one in hashed]
        if named and names_content(key) and _hash(body) not in named:
            return named[-1], _hash(body)
    return None


def _hash(body: bytes) -> str:
    return blake3(body).hexdigest(length=16)


def judge(one: Input) -> list[Fault]:
    """Run the verbs of an input by a new client; return what they should not have done."""
    found: list[Fault] = []
    saved = saved_in(one.lake)
    with warnings.catch_warnings(), opened(store_of(one.objects)) as lake:
        warnings.simplefilter("ignore")
        for number, verb in enumerate(one.verbs):
            faults, result, failed = faults_of(verb, partial(verbs_of()[verb], lake, saved))
            found += faults
            if (
                verb == "read" and number == 0 and not failed
            ):  # later ones have the rows that verbs have written
                found += _of_rows(one, result)
    return found


def _of_rows(one: Input, result: Any) -> list[Fault]:
    """Return a fault if a cut object gave other rows without a word."""
    if not one.how.startswith(("cut", "count changed")):
        return []
    with opened(store_of(lake_of(one.lake))) as lake:
        sound = rows(lake)
    return (
        [] if result == sound else [Fault("other rows", "read", f"{len(result)} of {len(sound)}")]
    )

"""Inputs that are JSON documents: a request of many parts, whose parts are damaged one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lakevilla_testing.fuzzing import texts, trees
from lakevilla_testing.fuzzing.choices import Choices
from lakevilla_testing.fuzzing.damage import flipped
from lakevilla_testing.fuzzing.faults import Fault, faults_of
from lakevilla_testing.fuzzing.target import Target


def of_documents(
    name: str,
    seeds: Sequence[Any],
    call: Callable[[Any], Any],
    allowed: tuple[type[Exception], ...] = (),
    *,
    is_work: bool = False,
) -> Target:
    """Return a target whose input is a document; one that is none is passed as its text.

    ``allowed`` errors may be raised besides the library's. If ``is_work``, a document may ask for
    any amount of work, as a statement may: then its time and memory say nothing.
    """

    def judge(data: bytes) -> list[Fault]:
        document = read(data)
        found, _, _ = faults_of(name, lambda: call(document), allowed)
        return [one for one in found if not is_work or one.what.startswith("a raw")]

    return Target([json.dumps(one).encode() for one in seeds], judge, changed)


def read(data: bytes) -> Any:
    """Return the document of an input, or its text."""
    text = data.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def changed(data: bytes, choices: Choices) -> bytes:
    """Return a document with a part exchanged, or with other words in one of its texts."""
    document = read(data)
    try:
        made = (
            _with_other_words(document, choices)
            if choices.number(2)
            else trees.damaged(document, choices)
        )
        return trees.rendered(made).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return flipped(data, choices)


def _with_other_words(document: Any, choices: Choices) -> Any:
    if isinstance(document, str):
        return texts.changed(document, choices)
    if isinstance(document, Mapping) and document:
        name = choices.one_of(list(document))
        return {**document, name: _with_other_words(document[name], choices)}
    if isinstance(document, list) and document:
        at = choices.number(len(document))
        return [*document[:at], _with_other_words(document[at], choices), *document[at + 1 :]]
    return trees.damaged(document, choices)

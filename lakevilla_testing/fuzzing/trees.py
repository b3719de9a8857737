"""JSON documents with a part exchanged for one that its reader does not expect."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from lakevilla_testing.fuzzing.choices import Choices

#: A place in a document: keys and indices from the root.
Path = tuple[str | int, ...]


class Written(str):
    """A text that stands in a document as it is, without quotes."""


#: Values that readers tend to trust.
ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**64,
    0.5,
    Written("1e999"),
    Written("1" + "0" * 400),
    Written("1" + "0" * 5000),
    Written("NaN"),
    Written('"\\ud800"'),
    Written('"\\u0000"'),
    "",
    " ",
    ".",
    "..",
    "../../x",
    "/etc/passwd",
    "file:///etc/passwd",
    "s3://other/x",
    "%2e%2e/x",
    "%",
    "%zz",
    "%ff%fe",
    "a\nb",
    "ü\u202e\U0001f600",
    "x" * 100_000,
    "1970-01-01",
    "99999-12-31T00:00:00Z",
    "-1",
    "0",
    "1e400",
    "{}",
    "[" * 20_000,
    Written("[" * 20_000 + "]" * 20_000),
    Written('{"a":' * 20_000 + "0" + "}" * 20_000),
    [],
    [None],
    [[]],
    {},
    {"": None},
    {"a": {"b": [1]}},
)


def damaged(document: Any, choices: Choices) -> Any:
    """Return a document with one part exchanged; the given one is not changed."""
    path = choices.one_of(list(_paths(document)))
    inner = _at(document, path)
    if isinstance(inner, str) and inner[:1] in ("{", "[") and choices.number(4):
        # Statistics and schemas are documents within documents.
        try:
            return _with(document, path, rendered(damaged(json.loads(inner), choices)))
        except (ValueError, RecursionError):
            pass
    match choices.number(8):
        case 0 | 1 | 2:
            return _with(document, path, choices.one_of(ODD))
        case 3:
            return _without(document, path)
        case 4:
            return _with(document, path, _at(document, choices.one_of(list(_paths(document)))))
        case 5:
            return _with(document, path, _doubled(path, inner, choices))
        case 6:
            return _with(document, path, choices.one_of([[inner], {"a": inner}, [inner, inner]]))
        case _:
            return _with(document, path, _near(inner, choices))


def rendered(document: Any) -> str:
    """Return a document as JSON, with what is ``Written`` as it is."""
    written: list[Written] = []

    def plain(value: Any) -> Any:
        if isinstance(value, Written):
            written.append(value)
            return f"\x01{len(written) - 1}\x01"
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        return [plain(one) for one in value] if isinstance(value, list) else value

    text = json.dumps(plain(document), separators=(",", ":"), ensure_ascii=False)
    for number, one in enumerate(written):
        text = text.replace(f'"\\u0001{number}\\u0001"', one)
    return text


def _paths(document: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(document, dict):
        for key, value in document.items():
            yield from _paths(value, (*path, key))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from _paths(value, (*path, index))


def _at(document: Any, path: Sequence[str | int]) -> Any:
    for part in path:
        document = document[part]
    return document


def _with(document: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    copy: Any = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = _with(document[path[0]], path[1:], value)
    return copy


def _without(document: Any, path: Path) -> Any:
    if not path:
        return None
    parent = _at(document, path[:-1])
    copy: Any = dict(parent) if isinstance(parent, dict) else list(parent)
    del copy[path[-1]]
    return _with(document, path[:-1], copy)


def _doubled(path: Path, inner: Any, choices: Choices) -> Any:
    """Return a value that, written, says its key twice, or stands twice in its list."""
    again = rendered(choices.one_of((inner, *ODD)))
    key = path[-1] if path else 0
    name = f"{json.dumps(key)}:" if isinstance(key, str) else ""
    return Written(f"{rendered(inner)},{name}{again}")


def _near(inner: Any, choices: Choices) -> Any:
    """Return a value of the same type, a little different."""
    if isinstance(inner, bool) or inner is None:
        return not inner
    if isinstance(inner, int | float):
        return inner + choices.one_of((1, -1, 1000, -1000, 2**40))
    if isinstance(inner, str):
        at = choices.number(len(inner) + 1)
        return inner[:at] + choices.one_of(("", "x", "/", "\0", "é", "'")) + inner[at + 1 :]
    if isinstance(inner, list):
        return choices.one_of((inner[1:], inner[:-1], inner + inner, inner[::-1]))
    return dict(list(inner.items())[1:]) if isinstance(inner, dict) else None

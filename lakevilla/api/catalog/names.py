"""Tables whose names match the first steps of a path, part by part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.api.catalog.filters import constants_in, filtered
from lakevilla.api.catalog.paths import PathStep
from lakevilla.errors import InvalidOperation
from lakevilla.sql.catalog import SCHEMAS, NameRange, range_of

Row = dict[str, Any]
_DIRECTORY = pa.schema([("name", pa.string())])
_HIGHEST = chr(0x10FFFF)


def names_asked(steps: Sequence[PathStep]) -> NameRange:
    """Return the range of names that can match the steps, by the steps up to the first ``*`` and
    the filters of that one.
    """
    fixed = []
    for step in steps:
        if step.is_any:
            break
        fixed.append(step.text)
    if len(fixed) == len(steps):
        return NameRange(exact=frozenset({"/".join(fixed)}))
    prefix = "".join(f"{part}/" for part in fixed)
    step = steps[len(fixed)]
    if step.text == "**":
        return NameRange(prefix, prefix + _HIGHEST)
    part = range_of(constants_in(step, SCHEMAS["tables"]), "name")
    if part.exact is not None and len(fixed) + 1 == len(steps):
        return NameRange(exact=frozenset(prefix + name for name in part.exact))
    last = "" if part.last is None else part.last
    return NameRange(prefix + part.first, prefix + last + _HIGHEST)


def matching(rows: Sequence[Row], steps: Sequence[PathStep]) -> list[Row]:
    """Return the tables that match the steps and their filters, in the order of their names."""
    fitting: list[tuple[tuple[str, ...], Row]] = []
    for row in rows:
        fitting += [(parts, row) for parts in _cut(row["name"].split("/"), steps)]
    for depth, step in enumerate(steps):
        is_last = depth == len(steps) - 1
        if not step.filters:
            continue
        if not is_last and any(isinstance(one, int) for one in step.filters):
            raise InvalidOperation(
                f"[{step.filters[0]}] picks a table, and {step.text!r} is a directory: only the "
                "last part of a name takes a position"
            )
        own = SCHEMAS["tables"] if is_last else _DIRECTORY
        groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
        for parts, row in fitting:
            known = row if is_last else {}
            groups[parts[:depth]].append({**known, "name": parts[depth], "": (parts, row)})
        fitting = [one[""] for group in groups.values() for one in filtered(group, step, own)]
    return list({row["name"]: row for _, row in sorted(fitting, key=_name_of)}.values())


def _name_of(one: tuple[tuple[str, ...], Row]) -> str:
    return str(one[1]["name"])


def _cut(parts: Sequence[str], steps: Sequence[PathStep]) -> Iterator[tuple[str, ...]]:
    """Yield the ways to divide a name's parts among the steps; ``**`` matches one or more parts."""
    if not steps or not parts:
        if not steps and not parts:
            yield ()
        return
    step = steps[0]
    most = len(parts) if step.is_any and step.text == "**" else 1
    for count in range(1, most + 1):
        own = "/".join(parts[:count])
        if step.is_any or own == step.text:
            for rest in _cut(parts[count:], steps[1:]):
                yield (own, *rest)

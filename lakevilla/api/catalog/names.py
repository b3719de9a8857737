"""Names of tables: paths and patterns."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown
from lakevilla.sql.catalog import SCHEMAS, Constant, NameRange, Operator, Term, range_of
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.evaluate import is_true
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.sql.expressions.tree import Call, Column, Expr, Literal, columns

# -------------------- names
#
# Tables whose names match a path's first steps, part by part.


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


# -------------------- paths
#
# Paths over the catalog, parsed (docs/design/0035).
#
# ``path := ("/" step)+``, ``step := (name | "*" | "**") ("[" predicate "]" | "[" int "]")*``.
# Steps are parts of a table's name until one of ``BELOW``; a step in double quotes is always a
# name.


#: The steps that may follow each step below the table, and, under ``""``, the table itself.
BELOW: Mapping[str, tuple[str, ...]] = {
    "": ("snapshots", "files", "columns", "statistics", "commits"),
    "snapshots": ("files", "columns", "statistics"),
    "files": ("columns", "statistics"),
    "columns": (),
    "statistics": (),
    "commits": (),
}
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_POSITION = re.compile(r"\s*-?\d{1,18}\s*")


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step of a catalog path, and the filters that follow it in brackets, in order.

    A step is a name, or (``is_any``) ``*`` for one part of a name or ``**`` for one part or more.
    A filter is a predicate or a position.
    """

    text: str
    is_any: bool = False
    filters: tuple[Expr | int, ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogPath:
    """A parsed path: the steps of a table's name, and the steps below the table."""

    names: tuple[PathStep, ...]
    below: tuple[PathStep, ...]


def parsed(path: object) -> CatalogPath:
    """Return a path's steps.

    Raises
    ------
    InvalidOperation
        The path is not valid. If it can't be parsed, the message has the position.
    """
    if not isinstance(path, str):
        raise InvalidOperation(f"a path is text, such as '/sales/*/files', not {shown(path)}")
    if path == "/":
        return CatalogPath((PathStep("**", True, ()),), ())
    reader = _Reader(path)
    names: list[PathStep] = []
    below: list[PathStep] = []
    while not reader.ended:
        step, is_quoted = reader.step()
        known = BELOW[below[-1].text if below else ""]
        if below and (is_quoted or step.text not in known):
            there = f"there are {', '.join(known)}" if known else "it is the last step there is"
            raise InvalidOperation(
                f"path {shown(path)}: {below[-1].text} has no step {step.text!r}: {there}"
            )
        if below or (not is_quoted and step.text in known):
            below.append(step)
        else:
            names.append(step)
    if not names:
        raise InvalidOperation(
            f"path {shown(path)} names no table: '/**' stands for all of them, as in "
            f"'/**/{below[0].text if below else 'files'}'"
        )
    return CatalogPath(tuple(names), tuple(below))


class _Reader:
    """The part of a path that is not parsed yet."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0
        if not path.startswith("/"):
            raise self._wrong("it must begin with '/', as in '/sales/orders/files'")

    @property
    def ended(self) -> bool:
        return self._at >= len(self._path)

    def step(self) -> tuple[PathStep, bool]:
        """Return the next step, and whether it is in quotes."""
        if self._path[self._at] != "/":
            raise self._wrong("after a step, '/' or the end of the path must follow")
        self._at += 1
        text, is_quoted = self._text()
        filters: list[Expr | int] = []
        while not self.ended and self._path[self._at] == "[":
            filters.append(self._filter())
        is_any = not is_quoted and text in ("*", "**")
        return PathStep(text, is_any, tuple(filters)), is_quoted

    def _text(self) -> tuple[str, bool]:
        rest = self._path[self._at :]
        if rest.startswith('"'):
            end = rest.find('"', 1)
            if end < 2:
                raise self._wrong("a name in quotes must not be empty, and must end with a quote")
            self._at += end + 1
            return rest[1:end], True
        for text in ("**", "*"):
            if rest.startswith(text):
                self._at += len(text)
                return text, False
        found = _NAME.match(rest)
        if found is None:
            raise self._wrong('a step must be a name, * or **; other names need quotes, "a b"')
        self._at += found.end()
        return found[0], False

    def _filter(self) -> Expr | int:
        """Return the filter in brackets; outside of quoted text, brackets come in pairs."""
        begin, depth, quote = self._at + 1, 0, ""
        for at in range(self._at, len(self._path)):
            char = self._path[at]
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"`":
                quote = char
            elif char == "[":
                depth += 1
            elif char == "]":
                depth -= 1
                if not depth:
                    self._at = at + 1
                    return self._read(self._path[begin:at])
        raise self._wrong("a bracket is not closed")

    def _read(self, text: str) -> Expr | int:
        if _POSITION.fullmatch(text):
            return int(text)
        try:
            return parse_predicate(text)
        except InvalidOperation as error:
            raise self._wrong(f"[{text}]: {error.message}") from None

    def _wrong(self, why: str) -> InvalidOperation:
        return InvalidOperation(f"path {shown(self._path)} can't be read at {self._at}: {why}")


# -------------------- terms
#
# Contents of a step's brackets, applied to its rows.


def filtered(
    rows: Sequence[Row], step: PathStep, own: pa.Schema, every: Sequence[Row] | None = None
) -> list[Row]:
    """Return the rows that pass the step's filters, which are applied one after the other.

    ``every`` has the rows of all tables; keys of maps are taken from them.

    Raises
    ------
    InvalidOperation
        A column does not exist.
    """
    left = list(rows)
    for one in step.filters:
        if isinstance(one, int):
            left = left[one : one + 1 or None] if abs(one) <= len(left) else []
            continue
        schema, maps = _bindable(own, rows if every is None else every, one)
        try:
            bound = bind(one, schema)
        except InvalidOperation as error:
            raise InvalidOperation(f"step {step.text!r}: {error.message}") from None
        left = [row for row in left if is_true(bound, _flat(row, maps))]
    return left


def _bindable(
    own: pa.Schema, rows: Sequence[Row], condition: Expr
) -> tuple[pa.Schema, Mapping[str, tuple[str, ...]]]:
    """Return the columns, each map replaced by a struct with a field for each key in the rows.

    Without rows the keys are unknown; then the struct has the keys that the condition names.
    """
    fields, maps = [], {}
    for field in own:
        if not pa.types.is_map(field.type):
            fields.append(field)
            continue
        keys = {key for row in rows for key in row.get(field.name) or ()}
        if not rows:
            named = (column.path for column in columns(condition))
            keys = {path[1] for path in named if len(path) > 1 and path[0] == field.name}
        maps[field.name] = tuple(sorted(keys))
        if keys:
            kinds = [pa.field(key, pa.string()) for key in maps[field.name]]
            fields.append(pa.field(field.name, pa.struct(kinds)))
    return pa.schema(fields), maps


def _flat(row: Row, maps: Mapping[str, tuple[str, ...]]) -> Row:
    changed = {
        name: {key: (row[name] or {}).get(key) for key in keys} for name, keys in maps.items()
    }
    return {**row, **changed}


_TURNED: dict[str, Operator] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SAME: dict[str, Operator] = {name: name for name in _TURNED.values()}


def constants_in(step: PathStep, own: pa.Schema) -> list[Term]:
    """Return the terms of a step's first filters by which rows are excluded before they are made.

    Terms after a position are not returned: a position counts the rows that passed before it.
    """
    found: list[Term] = []
    for one in step.filters:
        if isinstance(one, int):
            break
        for term in _terms(one):
            if term.column in own.names and not pa.types.is_map(own.field(term.column).type):
                found.append(term)
    return found


def _terms(condition: Expr) -> Iterator[Term]:
    if not isinstance(condition, Call):
        return
    if condition.name == "and":
        for one in condition.args:
            yield from _terms(one)
        return
    args = condition.args
    if condition.name in _SAME and len(args) == 2:
        for side, other, operators in ((args[0], args[1], _SAME), (args[1], args[0], _TURNED)):
            value = _constant(other)
            if isinstance(side, Column) and value is not None:
                yield Term(".".join(side.path).lower(), operators[condition.name], (value,))
                return
    elif condition.name == "in" and isinstance(args[0], Column):
        values = [_constant(one) for one in args[1:]]
        known = tuple(value for value in values if value is not None)
        if known and len(known) == len(values):
            yield Term(".".join(args[0].path).lower(), "in", known)
    elif condition.name in ("like", "starts_with") and isinstance(args[0], Column):
        prefix = _constant(args[1])
        if isinstance(prefix, str):
            if condition.name == "like":
                ends = [at for at in map(prefix.find, "%_\\") if at >= 0]
                prefix = prefix[: min(ends)] if ends else prefix
            if len(args) == 2:  # a third argument, the escape character, changes the meaning
                yield Term(".".join(args[0].path).lower(), "prefix", (prefix,))


def _constant(node: Expr) -> Constant | None:
    if not isinstance(node, Literal) or node.value is None:
        return None
    if node.type == "string":
        return node.value
    if node.type in ("byte", "short", "integer", "long"):
        return int(node.value)
    if node.type in ("float", "double") or node.type.startswith("decimal"):
        return float(node.value)
    return None

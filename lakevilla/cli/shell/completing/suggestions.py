"""What may stand at the cursor of a statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lakevilla.cli.shell.completing.names import NamedColumn, Names, dotted, quoted
from lakevilla.cli.shell.completing.scope import is_before_table, queries_in, tables_in
from lakevilla.cli.shell.completing.tokens import WrittenToken, tokens_of
from lakevilla.cli.shell.completing.words import (
    BEFORE_REFS,
    CLAUSES,
    FIRST_WORDS,
    FUNCTIONS,
    WORDS,
)

SuggestionKind = Literal[
    "table", "column", "alias", "keyword", "function", "ref", "command", "file"
]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A text that may replace the ``back`` characters before the cursor."""

    text: str
    back: int
    kind: SuggestionKind
    about: str = ""


def suggestions(before: str, after: str, names: Names) -> list[Suggestion]:
    """What may stand between two texts, the likeliest first; nothing in a string or a comment."""
    tokens = _statement(tokens_of(before))
    if tokens and not tokens[-1].is_closed and tokens[-1].kind != "quoted":
        return []
    behind = _up_to_semicolon(tokens_of(after))
    path, typed, tokens = _under_cursor([t for t in tokens if t.kind != "comment"], len(before))
    around = _Around(tokens, behind, names)
    back = 0 if typed is None else len(before) - typed.start
    prefix = "" if typed is None else typed.name
    found = around.members(path) if path else around.words(prefix)
    fits = prefix.lower()
    is_quoted = typed is not None and typed.kind == "quoted"
    return [
        Suggestion(_as_typed(text, prefix, kind), back, kind, about)
        for text, kind, about in _once(found)
        if text.lower().lstrip('"').startswith(fits) and (not is_quoted or kind in _NAMES)
    ]


_NAMES = ("table", "column", "alias", "ref")
_Found = tuple[str, SuggestionKind, str]


@dataclass(frozen=True, slots=True)
class _Around:
    """The statement without the name under the cursor."""

    tokens: Sequence[WrittenToken]
    behind: Sequence[WrittenToken]
    names: Names

    def members(self, path: Sequence[str]) -> Iterator[_Found]:
        """Behind a dot: the columns of an alias or a table, and tables of a directory."""
        scope = self._scope()
        whole = ".".join(path)
        table = scope.get(path[0]) if len(path) == 1 else None
        if table is None:
            table = next((name for name in scope.values() if name == whole), None)
        if table is not None:
            for column in self.names.columns(_slashed(table)):
                yield quoted(column.name), "column", column.type
        if table is None or self._expects() == "table":
            directory = "/".join(path) + "/"
            for name in self.names.tables(directory):
                yield dotted(name.removeprefix(directory)), "table", ""

    def words(self, prefix: str) -> Iterator[_Found]:
        match self._expects():
            case "first":
                yield from ((word, "keyword", "") for word in FIRST_WORDS)
            case "ref":
                yield from ((quoted(name), "ref", "") for name in self.names.refs())
            case "table":
                yield from ((quoted(name), "table", "WITH") for name in self._queries())
                yield from ((dotted(name), "table", "") for name in self.names.tables(prefix))
                if self.tokens and self.tokens[-1].upper == "TABLE":
                    yield from ((word, "keyword", "") for word in ("IF EXISTS", "IF NOT EXISTS"))
            case "column":
                yield from self._columns()
                yield from ((quoted(alias), "alias", name) for alias, name in self._scope().items())
                yield from ((word, "keyword", "") for word in WORDS)
                yield from ((f"{name}(", "function", "") for name in FUNCTIONS)
            case "keyword":
                yield from ((word, "keyword", "") for word in WORDS)

    def _expects(self) -> Literal["first", "ref", "table", "column", "keyword"]:
        if not self.tokens:
            return "first"
        last = self.tokens[-1]
        if last.upper in BEFORE_REFS:
            return "ref"
        if is_before_table(self.tokens, len(self.tokens) - 1):
            return "table"
        if last.text == ",":
            return "table" if self._lists_tables() else "column"
        if last.upper in ("EXISTS", "IF") and "TABLE" in (t.upper for t in self.tokens[-4:]):
            return "table"
        if last.kind in ("string", "number", "quoted") or last.text in (")", "*"):
            return "keyword"
        if last.kind == "word" and last.upper not in CLAUSES:
            return "keyword"
        return "column"

    def _lists_tables(self) -> bool:
        """Whether a comma stands in the list of a FROM, and not in brackets or behind SELECT."""
        depth = 0
        for place in range(len(self.tokens) - 1, -1, -1):
            token = self.tokens[place]
            depth += (token.text == ")") - (token.text == "(")
            if depth < 0:
                return False
            if depth == 0 and token.upper in CLAUSES and token.upper != "AS":
                return token.upper == "FROM"
        return False

    def _scope(self) -> dict[str, str]:
        return tables_in([*self.tokens, *self.behind])

    def _queries(self) -> list[str]:
        return queries_in([*self.tokens, *self.behind])

    def _columns(self) -> Iterator[_Found]:
        scope = self._scope()
        own: dict[str, list[NamedColumn]] = {
            alias: list(self.names.columns(_slashed(table))) for alias, table in scope.items()
        }
        for alias, columns in own.items():
            for column in columns:
                about = column.type if len(own) == 1 else f"{alias}: {column.type}"
                yield quoted(column.name), "column", about


def _statement(tokens: Sequence[WrittenToken]) -> list[WrittenToken]:
    """The tokens behind the last semicolon."""
    ends = [place for place, token in enumerate(tokens) if token.text == ";"]
    return list(tokens[ends[-1] + 1 if ends else 0 :])


def _up_to_semicolon(tokens: Sequence[WrittenToken]) -> list[WrittenToken]:
    ends = [place for place, token in enumerate(tokens) if token.text == ";"]
    own = tokens[: ends[0] if ends else len(tokens)]
    return [token for token in own if token.kind != "comment"]


def _under_cursor(
    tokens: list[WrittenToken], cursor: int
) -> tuple[list[str], WrittenToken | None, list[WrittenToken]]:
    """The parts before the last dot of the name that is being typed, its last part, the rest."""
    typed = None
    if tokens and tokens[-1].end == cursor and _goes_on(tokens[-1]):
        typed = tokens.pop()
    path: list[str] = []
    while len(tokens) > 1 and tokens[-1].text == "." and tokens[-2].kind in ("word", "quoted"):
        path.insert(0, tokens[-2].name)
        del tokens[-2:]
    return path, typed, tokens


def _goes_on(token: WrittenToken) -> bool:
    """Whether another letter would be part of it."""
    return token.kind == "word" or (token.kind == "quoted" and not token.is_closed)


def _slashed(name: str) -> str:
    return name.replace(".", "/")


def _once(found: Iterable[_Found]) -> Iterator[_Found]:
    seen = set()
    for one in found:
        if one[0] not in seen:
            seen.add(one[0])
            yield one


def _as_typed(text: str, prefix: str, kind: SuggestionKind) -> str:
    """A keyword in the case of what is typed."""
    return text.lower() if kind == "keyword" and prefix and prefix.islower() else text

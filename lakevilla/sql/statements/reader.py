"""Read statements with sqlglot, and the parameters in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, pairwise
from typing import NoReturn

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.syntax.parameter_names import Token, TokenType
from lakevilla.sql.statements.select import (
    Dialect,
    Select,
    opens,
    quoted,
    select_of,
    slice_of,
    table_name,
    tokens_of,
    word_of,
)

# -------------------- reader
#
# The tokens of a statement, walked once; the parts between keywords stay text.


_END = "the end of the statement"


class TokenReader:
    """A reader that visits each token once; a text ends at a keyword outside brackets and CASE."""

    def __init__(self, sql: str, tokens: Sequence[Token], dialect: Dialect) -> None:
        self._sql, self._tokens, self.dialect = sql, tokens, dialect
        self._next = 0

    # -- one token -----------------------------------------------------------------

    def take(self) -> Token:
        if self._next >= len(self._tokens):
            raise InvalidOperation("the statement is incomplete: more belongs behind its end")
        self._next += 1
        return self._tokens[self._next - 1]

    def accept(self, *words: str) -> bool:
        """Take these words, if all of them are next."""
        if not all(self.peek(word, ahead) for ahead, word in enumerate(words)):
            return False
        self._next += len(words)
        return True

    def accept_one(self, *words: str) -> str | None:
        """Take the next token if it is one of these words."""
        return next((word for word in words if self.accept(word)), None)

    def expect_one(self, *words: str) -> str:
        found = self.accept_one(*words)
        if found is None:
            self.refuse(self.shown(), f"{' or '.join(words)} belongs here")
        return found

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                self.refuse(self.shown(), f"{word} belongs here")

    def peek(self, word: str, ahead: int = 0) -> bool:
        place = self._next + ahead
        return place < len(self._tokens) and word_of(self._tokens[place]) == word

    @property
    def place(self) -> int:
        """Return the number of tokens that were taken."""
        return self._next

    def skip(self, count: int) -> None:
        self._next += count

    @property
    def left(self) -> int:
        """Return the number of tokens that are left."""
        return len(self._tokens) - self._next

    @property
    def next_type(self) -> TokenType | None:
        return None if self.at_end else self._tokens[self._next].token_type

    @property
    def at_end(self) -> bool:
        return self._next >= len(self._tokens)

    def expect_end(self) -> None:
        if not self.at_end:
            self.refuse(self.shown(), "the statement should end before it")

    def shown(self) -> str:
        if self.at_end:
            return _END
        return self._tokens[self._next].text

    def refuse(self, what: str, advice: str) -> NoReturn:
        if what.endswith(_END):
            raise InvalidOperation(f"the statement is incomplete; {advice}")
        raise InvalidOperation(f"{what} is not supported in sql; {advice}")

    # -- names, values and texts ---------------------------------------------------

    def table(self) -> str:
        return self.table_and_alias()[0]

    def table_and_alias(self) -> tuple[str, str]:
        """Return a table's name, and its columns' qualifier if the statement has no alias."""
        parts = self.dotted()
        return table_name(parts), parts[-1].rsplit("/", 1)[-1]

    def written_table(self) -> tuple[str, str]:
        """Return a table's name, and its spelling in the statement."""
        start = self._next
        name = self.table()
        return name, self._slice(start, self._next)

    def alias(self, *ends: str) -> str | None:
        if self.accept("AS"):
            return self.name()
        if self.at_end or any(self.peek(end) for end in ends):
            return None
        return self.name()

    def name(self) -> str:
        token = self.take()
        if (
            token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER)
            and not token.text.isidentifier()
        ):
            self._next -= 1
            self.refuse(self.shown(), "a name belongs here")
        return token.text

    def dotted(self) -> list[str]:
        """Read names with dots between them."""
        parts = [self.name()]
        while self.accept("."):
            parts.append(self.name())
        return parts

    def names(self) -> tuple[str, ...]:
        """Read names up to a closing parenthesis, which is taken."""
        found = [self.name()]
        while self.accept(","):
            found.append(self.name())
        self.expect(")")
        return tuple(found)

    def string(self) -> str:
        """Read a text in quotes."""
        token = self.take()
        if token.token_type is not TokenType.STRING:
            self._next -= 1
            self.refuse(self.shown(), "a text in '...' belongs here")
        return token.text

    def parameter(self) -> str | None:
        """Read the name of a ``:name`` that is next; None if none is."""
        return self.name() if self.accept(":") else None

    def number(self) -> int:
        """Read a whole number."""
        token = self.take()
        if token.token_type is not TokenType.NUMBER or not token.text.isdecimal():
            self._next -= 1
            self.refuse(self.shown(), "a whole number belongs here")
        return int(token.text)

    def text(self, *ends: str) -> str:
        """Read the text up to one of ``ends``, or to the end of the statement."""
        start, depth, cases = self._next, 0, 0
        while not self.at_end:
            token = self._tokens[self._next]
            compares = self.peek("FROM") and self.peek("DISTINCT", -1)  # IS DISTINCT FROM
            if not (depth or cases or compares) and any(self.peek(end) for end in ends):
                break
            depth += opens(token)
            if token.token_type is TokenType.SEMICOLON:
                raise InvalidOperation(
                    "sql holds more than one statement; give exactly one, "
                    "and call sql again for each"
                )
            elif token.token_type is TokenType.CASE:
                cases += 1
            elif token.token_type is TokenType.END and cases:
                cases -= 1
            self._next += 1
        if self._next == start:
            self.refuse(self.shown(), "an expression belongs here")
        return self._slice(start, self._next)

    def type_text(self, *ends: str) -> str:
        """Read the text of a type, up to a comma, a closing parenthesis or one of ``ends``."""
        start, depth = self._next, 0
        while not self.at_end:
            token = self._tokens[self._next]
            closes = token.token_type is TokenType.R_PAREN
            if depth == 0 and (closes or any(self.peek(end) for end in (",", *ends))):
                break
            if token.token_type is not TokenType.IDENTIFIER:
                depth += sum(token.text.count(mark) for mark in "(<[")
                depth -= sum(token.text.count(mark) for mark in ")>]")
            self._next += 1
        if self._next == start:
            self.refuse(self.shown(), "a type belongs here")
        return self._slice(start, self._next)

    def bracketed(self) -> str:
        """Read the text within parentheses, which are taken."""
        self.expect("(")
        inside = self.text(")")
        self.expect(")")
        return inside

    def query(self, text: str) -> Select:
        return select_of(text, dialect=self.dialect)

    def _slice(self, start: int, end: int) -> str:
        return slice_of(self._sql, self._tokens[start:end])


# -------------------- nested parameters
#
# Mappings as parameters: structs of single parameters, written out in the text.
#
# So a query has scalars alone as its parameters, which a redo, a saved transaction and every engine
# can handle. A mapping of texts is a struct; ``INSERT`` makes a map of it where the column is one.


#: Statements that the engine computes. Conditions and assignments are expressions, which have no
#: structs.
_BY_THE_ENGINE = frozenset({"SELECT", "WITH", "FROM", "VALUES", "INSERT"})


def with_nested(
    text: str, params: dict[str, object], dialect: Dialect
) -> tuple[str, dict[str, object]]:
    """Return a query or an INSERT and its parameters, none of which is or holds a mapping."""
    nested = {name for name, value in params.items() if _holds_mapping(value)}
    if not nested or dialect != "duckdb":
        return text, params
    tokens = tokens_of(text)
    if not tokens or word_of(tokens[0]) not in _BY_THE_ENGINE:
        return text, params
    values = dict(params)
    pieces, position = [], 0
    written: dict[str, str] = {}
    for colon, name in pairwise(tokens):
        if (
            colon.token_type is TokenType.COLON
            and name.start == colon.end + 1
            and name.text in nested
        ):
            if name.text not in written:
                written[name.text] = _written(values.pop(name.text), name.text, values)
            pieces += [text[position : colon.start], written[name.text]]
            position = name.end + 1
    return "".join([*pieces, text[position:]]), values


def _holds_mapping(value: object) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list | tuple) and any(map(_holds_mapping, value))


def _written(value: object, name: str, values: dict[str, object]) -> str:
    """Return the value in SQL, with a new parameter for each scalar in it."""
    if isinstance(value, Mapping):
        if _is_struct(value):
            fields = (f"{_field(key)} := {_written(value[key], name, values)}" for key in value)
            return f"struct_pack({', '.join(fields)})"
        keys = ", ".join(_written(key, name, values) for key in value)
        items = ", ".join(_written(item, name, values) for item in value.values())
        return f"map([{keys}], [{items}])"
    if isinstance(value, list | tuple) and _holds_mapping(value):
        return f"[{', '.join(_written(item, name, values) for item in value)}]"
    if value is None:
        return "NULL"
    one = next(f"{name}__{n}" for n in count(len(values)) if f"{name}__{n}" not in values)
    values[one] = value
    return f":{one}"


def _is_struct(value: Mapping[object, object]) -> bool:
    """Return whether the keys are names of fields: texts that differ in more than their case."""
    names = {key.lower() for key in value if isinstance(key, str) and key}
    return 0 < len(value) == len(names)


def _field(key: object) -> str:
    return quoted(str(key), "duckdb")

"""Nodes of sqlglot as nodes of the language."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, DecimalException
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

from lakevilla.arrow.scalars import plain
from lakevilla.sql.expressions.functions.catalogue import FUNCTIONS, missing
from lakevilla.sql.expressions.functions.core import INTERVAL_UNITS, lower, upper
from lakevilla.sql.expressions.functions.shorthand import ALIASES, SHORTHANDS
from lakevilla.sql.expressions.syntax.parameter_names import exp
from lakevilla.sql.expressions.syntax.slips import ambiguous
from lakevilla.sql.expressions.tree import Call, Case, Cast, Column, Expr, Literal
from lakevilla.sql.expressions.types import decimal_type, is_numeric
from lakevilla.sql.expressions.values import (
    cast_value,
    literal,
    literal_of,
    parse_timestamp,
    value_of,
)

# -------------------- sql nodes
#
# Conversion of sqlglot's nodes to our tree: each kind of node has a reader; a kind without one is
# refused.
#
# A call is parsed as a name with operands and is looked up in ``functions``.


#: A function that makes a tree of another library's expression, and returns None for other objects.
Foreign: TypeAlias = Callable[[object], Expr | None]

#: By the name of a call, a function that makes a tree of its operands.
Spellings: TypeAlias = Mapping[str, Callable[[Sequence[Expr]], Expr]]


class NotInLanguage(Exception):
    """The error for a part of a text that the language does not have."""


class Reader:
    """Converter of sqlglot's nodes to LakeVilla's; it notes which parameters were used."""

    def __init__(
        self,
        params: Mapping[str, object],
        now: datetime | None,
        foreign: Foreign | None = None,
        *,
        spellings: Spellings = MappingProxyType({}),
    ) -> None:
        self.params = params
        self.now = now
        self._foreign = foreign
        #: Calls that have another meaning in another SQL, by their names; ``[]`` is ``a[1]``.
        self.spellings = spellings
        self.used: set[str] = set()
        #: Parts of texts that differ from their trees: functions under the names by which they were
        #: called, without operands, BETWEEN, and casts of constants, which are computed already.
        self.written: dict[Expr, None] = {}

    def read(self, node: Any) -> Expr:
        reader = _readers().get(type(node))
        if reader is None:
            raise NotInLanguage(f"{_shown(node)} is not available in an expression")
        if ambiguous(node):
            raise NotInLanguage(
                f"{_shown(node)} can be read in two ways, as one test is an operand of another: "
                "put parentheses around what belongs together"
            )
        return reader(self, node)

    def of_foreign(self, given: object) -> Expr | None:
        """Return the tree of an expression of another library; None for any other object."""
        return None if self._foreign is None else self._foreign(given)

    def parameter(self, node: exp.Placeholder) -> object:
        name = node.this
        if not isinstance(name, str):
            raise NotInLanguage("a parameter needs a name: write it as :name")
        if name not in self.params:
            raise NotInLanguage(f"parameter :{name} has no value: pass params={{{name!r}: ...}}")
        self.used.add(name)
        return plain(self.params[name], f"parameter :{name}", nested=True)


def _shown(node: object) -> str:
    if isinstance(node, exp.Expression):
        try:
            text = node.sql()
        except Exception:  # rendering is for the message only
            text = ""
        return f"`{text[:80]}`" if text else node.key
    return f"{node!r}"[:80]


def _call(name: str) -> Callable[[Reader, Any], Expr]:
    def read(reader: Reader, node: Any) -> Expr:
        return Call(name, (reader.read(node.this), reader.read(node.expression)))

    return read


def _chain(name: str, class_: type[exp.Expression]) -> Callable[[Reader, Any], Expr]:
    """Read ``a and b and c`` as one call: thousands of terms must not nest thousands deep."""

    def read(reader: Reader, node: Any) -> Expr:
        terms: list[Expr] = []
        pending = [node]
        while pending:
            current = pending.pop()
            while isinstance(current, exp.Paren):
                current = current.this
            if type(current) is class_:
                pending += [current.expression, current.this]
            else:
                terms.append(reader.read(current))
        return Call(name, tuple(terms))

    return read


def _like(name: str) -> Callable[[Reader, Any], Expr]:
    def read(reader: Reader, node: Any) -> Expr:
        args = reader.read(node.this), pattern(reader.read(node.expression))
        return _not_if(bool(node.args.get("negate")), Call(name, args))

    return read


def _not_if(negate: bool, tree: Expr) -> Expr:
    return Call("not", (tree,)) if negate else tree


def _escape(reader: Reader, node: exp.Escape) -> Expr:
    tree = reader.read(node.this)
    negate = isinstance(tree, Call) and tree.name == "not"
    if negate:
        assert isinstance(tree, Call)
        tree = tree.args[0]
    if not (isinstance(tree, Call) and tree.name in ("like", "ilike")):
        raise NotInLanguage("escape belongs to like")
    return _not_if(negate, Call(tree.name, (*tree.args, reader.read(node.expression))))


def _column(reader: Reader, node: exp.Column | exp.Dot) -> Expr:
    names: list[str] = []
    current: Any = node
    while isinstance(current, exp.Dot):
        if not isinstance(current.expression, exp.Identifier):
            raise NotInLanguage(f"{_shown(current.expression)} is not available in an expression")
        names.append(current.expression.name)
        current = current.this
    if isinstance(current, exp.Bracket | exp.Paren | exp.Anonymous):
        tree = reader.read(current)
        if isinstance(tree, Column):
            return Column((*tree.path, *reversed(names)))
        raise NotInLanguage(
            f"a field of an element or of a computed value ({node.sql()[:80]}) is not available, "
            "as it would not follow its field when that is renamed: keep it in a column of its own"
        )
    parts = current.parts if isinstance(current, exp.Column) else [current]
    if not all(isinstance(part, exp.Identifier) and part.name for part in parts):
        raise NotInLanguage(f"{_shown(node)} is not a column")
    if any(part.name.startswith("$") and not part.args.get("quoted") for part in parts):
        raise NotInLanguage(f"{node.sql()} is no parameter here: write it as :name")
    return Column((*(part.name for part in parts), *reversed(names)))


def _constant(reader: Reader, node: exp.Literal) -> Expr:
    text: str = node.this
    if node.is_string:
        return Literal("string", text)
    try:
        if "e" in text or "E" in text:
            return literal(float(text))
        return literal(Decimal(text) if "." in text else int(text))
    except (ValueError, DecimalException):
        raise NotInLanguage(f"{text} is not a number") from None


def _hex(reader: Reader, node: exp.HexString) -> Expr:
    try:
        return literal(bytes.fromhex(str(node.this)))
    except ValueError:
        raise NotInLanguage(f"X'{node.this}' is not an even number of hex digits") from None


def _placeholder(reader: Reader, node: exp.Placeholder) -> Expr:
    return literal(reader.parameter(node), _what(node))


def _what(node: exp.Placeholder) -> str:
    return f"parameter :{node.this}"


def _negative(tree: Expr) -> Expr:
    if isinstance(tree, Literal) and tree.value is not None and is_numeric(tree.type):
        value = value_of(tree)
        if isinstance(value, Decimal) and tree.type.endswith(",0)"):
            return literal(-int(value))  # -9223372036854775808 is a long
        if isinstance(value, int | float | Decimal):
            # A constant in single precision is negated in single precision.
            return literal_of("float", -value) if tree.type == "float" else literal(-value)
    return Call("neg", (tree,))


def _is(reader: Reader, node: exp.Is) -> Expr:
    tree, what = reader.read(node.this), node.expression
    if isinstance(what, exp.Null):
        return Call("is_null", (tree,))
    if isinstance(what, exp.Boolean):
        return Call("<=>", (tree, reader.read(what)))
    raise NotInLanguage(
        f"`is {what.sql()}` is not available: use null, true, false or distinct from"
    )


def _braces(reader: Reader, node: exp.Struct) -> Expr:
    pairs = [part for part in node.expressions if isinstance(part, exp.PropertyEQ)]
    names = [part.this.name for part in pairs if isinstance(part.this, exp.Identifier)]
    if not names or not len(names) == len(pairs) == len(node.expressions):
        raise NotInLanguage(
            f"{_shown(node)} is not available: braces hold the fields of a struct, "
            "{'a': 1, 'b': x}, and a parameter is written as :name"
        )
    values = (reader.read(part.expression) for part in pairs)
    args = zip((Literal("string", name) for name in names), values, strict=True)
    return Call("struct", tuple(arg for pair in args for arg in pair))


_SUBQUERY = (
    "a subquery is not available in an expression: use merge, whose source may be a query, or run "
    "the query first and pass its values in params"
)


def _subquery(reader: Reader, node: exp.Expression) -> Expr:
    raise NotInLanguage(_SUBQUERY)


def _in(reader: Reader, node: exp.In) -> Expr:
    if node.args.get("query") or node.args.get("unnest"):
        raise NotInLanguage(_SUBQUERY)
    field = node.args.get("field")
    if field is not None and not isinstance(field, exp.Placeholder):
        raise NotInLanguage(f"`in` needs a list in parentheses or a parameter, not {_shown(field)}")
    items: list[Expr] = []
    for item in [field] if field is not None else node.expressions:
        inner = item.this if isinstance(item, exp.Paren) else item
        value = reader.parameter(inner) if isinstance(inner, exp.Placeholder) else None
        if isinstance(value, list):
            items += [literal(one, _what(inner)) for one in value]
        elif field is not None:
            raise NotInLanguage(
                f"parameter :{field.this} after `in` must be a list: pass one, or write "
                f"= :{field.this}"
            )
        else:
            items.append(reader.read(item))
    tree = Call("in", (reader.read(node.this), *items))
    return _not_if(bool(node.args.get("negate")), tree)


def _between(reader: Reader, node: exp.Between) -> Expr:
    if node.args.get("symmetric"):
        raise NotInLanguage("between symmetric is not available: use least and greatest")
    tree = reader.read(node.this)
    low, high = reader.read(node.args["low"]), reader.read(node.args["high"])
    reader.written[Call("between", (tree, low, high))] = None
    both = Call("and", (Call(">=", (tree, low)), Call("<=", (tree, high))))
    return _not_if(bool(node.args.get("negate")), both)


def _case(reader: Reader, node: exp.Case) -> Expr:
    subject = None if node.this is None else reader.read(node.this)
    branches = []
    for branch in node.args["ifs"]:
        when = reader.read(branch.this)
        if subject is not None:
            when = Call("=", (subject, when))
        branches.append((when, reader.read(branch.args["true"])))
    default = node.args.get("default")
    return Case(tuple(branches), None if default is None else reader.read(default))


def _sum(name: str, sign: int) -> Callable[[Reader, Any], Expr]:
    plain = _call(name)

    def read(reader: Reader, node: Any) -> Expr:
        if isinstance(node.expression, exp.Interval):
            count, unit = _interval(reader, node.expression)
            args = (reader.read(node.this), literal(sign * count), Literal("string", unit))
            return Call("add_interval", args)
        return plain(reader, node)

    return read


def _interval(reader: Reader, node: exp.Interval) -> tuple[int, str]:
    unit = node.args.get("unit")
    name = "" if unit is None else unit.name.lower().removesuffix("s")
    count = None if node.this is None else reader.read(node.this)
    text = count.value if isinstance(count, Literal) else None
    try:
        number = int(text or "")
    except ValueError:
        number = None
    if name not in INTERVAL_UNITS or number is None:
        raise NotInLanguage(
            f"{_shown(node)} is not available: write interval '<whole number>' <unit>, with one of "
            f"{', '.join(INTERVAL_UNITS)}"
        )
    return number, name


def _function(reader: Reader, node: exp.Anonymous) -> Expr:
    name = str(node.this).lower()
    reader.written[Call(name, ())] = None
    if name == "now" and not node.expressions:
        return _timestamp(reader, node)
    operands = _operands(name, node)
    if (spelling := reader.spellings.get(name)) is not None:
        return spelling([reader.read(arg) for arg in operands])
    if (shorthand := SHORTHANDS.get(name)) is not None:
        if len(operands) not in shorthand.counts:
            raise NotInLanguage(f"{node.this}() takes other operands: write {shorthand.usage}")
        return shorthand.written_out([reader.read(arg) for arg in operands])
    function = FUNCTIONS.get(ALIASES.get(name, name))
    if function is None or not (function.called or name in ALIASES):
        raise NotInLanguage(missing(str(node.this)))
    name = ALIASES.get(name, name)
    args = tuple(reader.read(arg) for arg in operands)
    if name == "||" and len(args) > 2:  # concat(a, b, c)
        while len(args) > 2:
            args = (Call("||", args[:2]), *args[2:])
    if len(args) < function.least or (function.most is not None and len(args) > function.most):
        raise NotInLanguage(f"{node.this}() takes other operands: write {function.usage}")
    return Call(name, args)


def _operands(name: str, node: exp.Anonymous) -> Sequence[Any]:
    """Return the operands of a call; ``position(a in b)`` is parsed as a test of membership."""
    operands: Sequence[Any] = node.expressions
    if name == "position" and len(operands) == 1 and isinstance(operands[0], exp.In):
        inside = operands[0]
        return [part for part in (inside.this, inside.args.get("field")) if part is not None]
    return operands


def _item(reader: Reader, node: exp.Bracket) -> Expr:
    if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        raise NotInLanguage(f"{_shown(node)} is not available: name one element, as a[0]")
    args = (reader.read(node.this), reader.read(node.expressions[0]))
    spelling = reader.spellings.get("[]")
    return Call("get", args) if spelling is None else spelling(args)


def _extract(reader: Reader, node: exp.Extract) -> Expr:
    name = node.this.name.lower()
    name = {"doy": "dayofyear"}.get(name, ALIASES.get(name, name))
    parts = ("year", "quarter", "month", "weekofyear", "day", "dayofyear", "hour", "minute")
    # elsewhere the second has a fraction, and the first day of a week differs
    if name not in parts:
        raise NotInLanguage(
            f"extract({name} ...) is not available: use one of {', '.join(parts)}, or second(a)"
        )
    return Call(name, (reader.read(node.expression),))


def _timestamp(reader: Reader, node: exp.Expression) -> Expr:
    if reader.now is None:
        raise NotInLanguage("the current time is not available here: pass a constant")
    return literal(reader.now.astimezone(UTC))


def _date(reader: Reader, node: exp.CurrentDate) -> Expr:
    if reader.now is None or node.this is not None:
        raise NotInLanguage("the current date is not available here: pass a constant")
    return literal(reader.now.astimezone(UTC).date())


def _cast(reader: Reader, node: exp.Cast) -> Expr:
    if node.args.get("format") or node.args.get("default"):
        raise NotInLanguage("cast with a format is not available")
    tree, type_ = reader.read(node.this), _type(node.args["to"])
    if not isinstance(tree, Literal):
        return Cast(tree, type_)
    reader.written[Cast(tree, type_)] = None
    if tree.type == "string" and type_ == "timestamp" and tree.value is not None:
        tree = Literal("string", with_minutes(tree.value))
        assert tree.value is not None
        # A literal without a zone records that it has none: next to a column with a zone it means
        # UTC, next to one without a zone it is used unchanged.
        instant = cast_value(tree.value, "timestamp")
        return literal(instant) if parse_timestamp(tree.value).tzinfo else _zoneless(instant)
    return literal_of(type_, cast_value(value_of(tree), type_))


def _zoneless(instant: object) -> Literal:
    assert isinstance(instant, datetime)
    return Literal("timestamp", instant.replace(tzinfo=None).isoformat(sep=" "))


_TYPES = {
    "TINYINT": "byte",
    "SMALLINT": "short",
    "SHORT": "short",
    "INT": "integer",
    "INTEGER": "integer",
    "BIGINT": "long",
    "LONG": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "TEXT": "string",
    "VARCHAR": "string",
    "BINARY": "binary",
    "VARBINARY": "binary",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz",
}


def _type(node: exp.DataType) -> str:
    name = node.this.value if isinstance(node.this, exp.DataType.Type) else str(node.this)
    if name == "USERDEFINED":
        name = str(node.args.get("kind"))
    name = name.upper()
    inner = node.expressions
    if name == "ARRAY" and len(inner) == 1:
        return f"array<{_type(inner[0])}>"
    if name == "DECIMAL" and len(inner) == 2:
        precision, scale = (int(part.name) for part in inner)
        return decimal_type(precision, scale)
    if name in _TYPES and not inner:
        return _TYPES[name]
    raise NotInLanguage(
        f"cast to {node.sql()} is not available: use {', '.join(sorted(set(_TYPES.values())))} "
        "or decimal(p,s)"
    )


@lru_cache(1)
def _readers() -> dict[type, Callable[[Reader, Any], Expr]]:
    return {
        exp.Paren: lambda reader, node: reader.read(node.this),
        exp.And: _chain("and", exp.And),
        exp.Or: _chain("or", exp.Or),
        exp.Not: lambda reader, node: Call("not", (reader.read(node.this),)),
        exp.EQ: _call("="),
        exp.NEQ: _call("<>"),
        exp.LT: _call("<"),
        exp.LTE: _call("<="),
        exp.GT: _call(">"),
        exp.GTE: _call(">="),
        exp.NullSafeEQ: _call("<=>"),
        exp.NullSafeNEQ: lambda reader, node: Call("not", (_call("<=>")(reader, node),)),
        exp.Is: _is,
        exp.In: _in,
        exp.Between: _between,
        exp.Like: _like("like"),
        exp.ILike: _like("ilike"),
        exp.Escape: _escape,
        exp.RegexpLike: _call("regexp_like"),
        exp.Bracket: _item,
        exp.Extract: _extract,
        exp.Add: _sum("+", 1),
        exp.Sub: _sum("-", -1),
        exp.Mul: _call("*"),
        exp.Div: _call("/"),
        exp.Mod: _call("%"),
        exp.Neg: lambda reader, node: _negative(reader.read(node.this)),
        exp.DPipe: _call("||"),
        exp.Case: _case,
        exp.Cast: _cast,
        exp.Column: _column,
        exp.Dot: _column,
        exp.Literal: _constant,
        exp.HexString: _hex,
        exp.Boolean: lambda reader, node: literal(bool(node.this)),
        exp.Null: lambda reader, node: Literal("void"),
        exp.Placeholder: _placeholder,
        exp.Struct: _braces,
        exp.Array: lambda reader, node: Call("array", tuple(map(reader.read, node.expressions))),
        exp.Anonymous: _function,
        exp.CurrentTimestamp: _timestamp,
        exp.CurrentDate: _date,
        **dict.fromkeys((exp.Subquery, exp.Select, exp.Exists, exp.Any, exp.All), _subquery),
    }


# -------------------- constants
#
# Constants that a text writes in other forms than the language accepts.


_BY_HOURS = re.compile(r":\d\d(\.\d+)?[+-]\d\d$")
_CASES = {"lower": lower, "upper": upper}


def with_minutes(instant: str) -> str:
    """Return a timestamp with minutes in its zone, which DuckDB and PostgreSQL show in hours."""
    return f"{instant}:00" if _BY_HOURS.search(instant) else instant


def pattern(tree: Expr) -> Expr:
    """Return a pattern that is composed of constants, ``:start || '%'``, as one constant."""
    if not isinstance(tree, Call) or tree.name not in ("||", *_CASES):
        return tree
    parts = [pattern(arg) for arg in tree.args]
    texts = [part.value for part in parts if isinstance(part, Literal) and part.type == "string"]
    known = [text for text in texts if text is not None]
    if len(known) < len(parts):
        return tree
    return Literal("string", "".join(known) if tree.name == "||" else _CASES[tree.name](known[0]))

"""SQL text to an expression tree: exactly one expression, nothing that is not known by name.

sqlglot's generic dialect reads the text once, with its table of functions emptied: each
call arrives as a name with operands and is looked up in ``functions``. A node that has no
reader here is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, DecimalException
from typing import Any, ClassVar, cast

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from lakevilla.arrow.scalars import plain
from lakevilla.errors import InvalidOperation
from lakevilla.expressions.functions import ALIASES, FUNCTIONS, INTERVAL_UNITS
from lakevilla.expressions.tree import Call, Case, Cast, Column, Expr, Literal
from lakevilla.expressions.types import decimal_type, is_numeric
from lakevilla.expressions.values import cast_value, literal, literal_of, parse_timestamp, value_of
from lakevilla.settings import is_unicode
from lakevilla.settings import shown as in_short

__all__ = [
    "LakeVillaSQL",
    "literal",
    "parse_assignments",
    "parse_expression",
    "parse_predicate",
    "read_assignments",
]

MAX_TEXT = 1 << 20


class LakeVillaSQL(Dialect):
    """Standard strings, identifiers in double quotes or backticks, ``X'..'`` for bytes."""

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
        HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]

    class Parser(parser.Parser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            "CAST": parser.Parser.FUNCTION_PARSERS["CAST"]
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            "CASE": parser.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]
        }


_DIALECT = LakeVillaSQL()


def parse_predicate(
    sql: str | None, params: Mapping[str, object] | None = None, now: datetime | None = None
) -> Expr:
    """A ``where`` as a tree; that it is boolean is checked when it is bound.

    Parameters
    ----------
    sql : str
        One expression; ``true`` means all rows.
    params : Mapping, optional
        Values of ``:name``; each must be used.
    now : datetime, optional
        Aware; what ``current_timestamp`` and ``current_date`` stand for.

    Raises
    ------
    InvalidOperation
        No text, not exactly one expression, or something the language does not have.
    """
    return parse_expression(required(sql), params, now)


def required(sql: object) -> str:
    """The text of a predicate that must be given."""
    if sql is None or (isinstance(sql, str) and not sql.strip()):
        raise InvalidOperation('a predicate is required: where="true" means all rows')
    if not isinstance(sql, str):
        raise InvalidOperation(f"a predicate is SQL, as text, not a {type(sql).__name__}")
    return sql


def parse_expression(
    sql: str, params: Mapping[str, object] | None = None, now: datetime | None = None
) -> Expr:
    """One expression of any type as a tree. Arguments and errors as ``parse_predicate``."""
    reader = Reader({} if params is None else params, now)
    tree = parse_with(sql, reader)
    _refuse_unused(reader)
    return tree


def parse_assignments(
    assignments: Mapping[str, object],
    params: Mapping[str, object] | None = None,
    now: datetime | None = None,
) -> dict[str, Expr]:
    """Column to expression: a ``str`` is SQL, any other Python value a literal.

    Parameters are shared by all the expressions; each must be used by one of them.
    """
    reader = Reader({} if params is None else params, now)
    trees = read_assignments(assignments, reader)
    _refuse_unused(reader)
    return trees


def read_assignments(assignments: object, reader: Reader) -> dict[str, Expr]:
    """As ``parse_assignments``, by a reader that other expressions may share."""
    if not isinstance(assignments, Mapping):
        raise InvalidOperation(
            f"assignments map columns to new values, and a {type(assignments).__name__} does not: "
            'pass {"column": value}'
        )
    if not assignments:
        raise InvalidOperation("no assignments: name at least one column and its new value")
    for name in assignments:
        if not isinstance(name, str) or not name:
            raise InvalidOperation(
                f"assignments have the name {in_short(name)}: name columns by text"
            )
    return {
        name: parse_with(value, reader)
        if isinstance(value, str)
        else literal(value, f"the value for column {name}")
        for name, value in assignments.items()
    }


def _refuse_unused(reader: Reader) -> None:
    if unused := sorted(set(reader.params) - reader.used):
        raise InvalidOperation(
            f"parameters not used: {', '.join(unused)}; write :{unused[0]} or leave them out"
        )


def parse_with(sql: str, reader: Reader) -> Expr:
    if not isinstance(sql, str):
        raise InvalidOperation(
            f"an expression is text, not {type(sql).__name__}: pass SQL, and values through params"
        )
    shown = sql if len(sql) < 200 else sql[:197] + "..."
    if not is_unicode(sql):
        raise InvalidOperation(
            f"an expression has half of a surrogate pair: take it out of {shown!r}"
        )
    if len(sql) > MAX_TEXT:
        raise InvalidOperation(
            f"an expression of {len(sql)} characters is too long (at most {MAX_TEXT}): pass long "
            f"lists through params; it begins {shown!r}"
        )
    try:
        return reader.read(_syntax(sql, shown))
    except RecursionError:
        raise InvalidOperation(
            f"expression is nested too deeply: use fewer parentheses; it begins {shown!r}"
        ) from None
    except _Refused as refused:
        raise InvalidOperation(f"{refused}; in the expression {shown!r}") from None


def _syntax(sql: str, shown: str) -> exp.Expression:
    try:
        tokens = _DIALECT.tokenize(sql)
        for token in tokens:
            if token.token_type.name == "SEMICOLON":
                raise InvalidOperation(
                    f"exactly one expression is allowed: remove the ';' at line {token.line}, "
                    f"column {token.col} of {shown!r}"
                )
        nodes = _DIALECT.parser().parse_into(exp.Condition, tokens, sql)
    except SqlglotError as error:
        raise InvalidOperation(f"cannot read {shown!r}{_position(error)}: {_HINT}") from None
    except (ValueError, TypeError, AttributeError, IndexError, KeyError):
        # The parser's own slips on malformed input are still the caller's malformed input.
        raise InvalidOperation(f"cannot read {shown!r}: {_HINT}") from None
    if len(nodes) != 1 or nodes[0] is None:
        raise InvalidOperation(f"exactly one expression is needed, got {shown!r}: {_HINT}")
    return cast(exp.Expression, nodes[0])


_HINT = (
    "write one expression, strings in '...', names plain, in \"...\" or backticks, parameters as "
    ":name"
)


def _position(error: SqlglotError) -> str:
    details: list[dict[str, Any]] = getattr(error, "errors", None) or []
    if not details or not details[0].get("line"):
        return ""
    first = details[0]
    near = first.get("highlight")
    return f" at line {first['line']}, column {first['col']}" + (f", near {near!r}" if near else "")


class _Refused(Exception):
    """Something that the language does not have."""


class Reader:
    """Turns sqlglot's nodes into ours and remembers which parameters were used."""

    def __init__(self, params: Mapping[str, object], now: datetime | None) -> None:
        self.params = params
        self.now = now
        self.used: set[str] = set()

    def read(self, node: Any) -> Expr:
        reader = _READERS.get(type(node))
        if reader is None:
            raise _Refused(f"{_kind(node)} is not available in an expression")
        return reader(self, node)

    def parameter(self, node: exp.Placeholder) -> object:
        name = node.this
        if not isinstance(name, str):
            raise _Refused("a parameter needs a name: write it as :name")
        if name not in self.params:
            raise _Refused(f"parameter :{name} has no value: pass params={{{name!r}: ...}}")
        self.used.add(name)
        return plain(self.params[name], f"parameter :{name}")


def _kind(node: object) -> str:
    if isinstance(node, exp.Expression):
        try:
            text = node.sql()
        except Exception:  # rendering is for the message only
            text = ""
        return f"{node.key}{f' ({text[:80]})' if text else ''}"
    return f"{node!r}"[:80]


def _call(name: str) -> Callable[[Reader, Any], Expr]:
    def read(reader: Reader, node: Any) -> Expr:
        return Call(name, (reader.read(node.this), reader.read(node.expression)))

    return read


def _chain(name: str, class_: type[exp.Expression]) -> Callable[[Reader, Any], Expr]:
    """``a and b and c`` as one call: thousands of terms must not nest thousands deep."""

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


def _negated(name: str) -> Callable[[Reader, Any], Expr]:
    inner = _call(name)

    def read(reader: Reader, node: Any) -> Expr:
        return _not_if(bool(node.args.get("negate")), inner(reader, node))

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
        raise _Refused("escape belongs to like")
    return _not_if(negate, Call(tree.name, (*tree.args, reader.read(node.expression))))


def _column(reader: Reader, node: exp.Column | exp.Dot) -> Expr:
    names: list[str] = []
    current: Any = node
    while isinstance(current, exp.Dot):
        if not isinstance(current.expression, exp.Identifier):
            raise _Refused(f"{_kind(current.expression)} is not available in an expression")
        names.append(current.expression.name)
        current = current.this
    parts = current.parts if isinstance(current, exp.Column) else [current]
    if not all(isinstance(part, exp.Identifier) and part.name for part in parts):
        raise _Refused(f"{_kind(node)} is not a column")
    if any(part.name.startswith("$") and not part.args.get("quoted") for part in parts):
        raise _Refused(f"{node.sql()} is no parameter here: write it as :name")
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
        raise _Refused(f"{text} is not a number") from None


def _hex(reader: Reader, node: exp.HexString) -> Expr:
    try:
        return literal(bytes.fromhex(str(node.this)))
    except ValueError:
        raise _Refused(f"X'{node.this}' is not an even number of hex digits") from None


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
            return literal(-value)
    return Call("neg", (tree,))


def _is(reader: Reader, node: exp.Is) -> Expr:
    tree, what = reader.read(node.this), node.expression
    if isinstance(what, exp.Null):
        return Call("is_null", (tree,))
    if isinstance(what, exp.Boolean):
        return Call("<=>", (tree, reader.read(what)))
    raise _Refused(f"`is {what.sql()}` is not available: use null, true, false or distinct from")


def _in(reader: Reader, node: exp.In) -> Expr:
    if node.args.get("query") or node.args.get("unnest"):
        raise _Refused("a subquery is not available in an expression")
    field = node.args.get("field")
    if field is not None and not isinstance(field, exp.Placeholder):
        raise _Refused(f"`in` needs a list in parentheses or a parameter, not {_kind(field)}")
    items: list[Expr] = []
    for item in [field] if field is not None else node.expressions:
        inner = item.this if isinstance(item, exp.Paren) else item
        value = reader.parameter(inner) if isinstance(inner, exp.Placeholder) else None
        if isinstance(value, list):
            items += [literal(one, _what(inner)) for one in value]
        elif field is not None:
            raise _Refused(f"parameter :{field.this} after `in` must be a list")
        else:
            items.append(reader.read(item))
    tree = Call("in", (reader.read(node.this), *items))
    return _not_if(bool(node.args.get("negate")), tree)


def _between(reader: Reader, node: exp.Between) -> Expr:
    if node.args.get("symmetric"):
        raise _Refused("between symmetric is not available: use least and greatest")
    tree = reader.read(node.this)
    low, high = reader.read(node.args["low"]), reader.read(node.args["high"])
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
        raise _Refused(
            f"{_kind(node)} is not available: write interval '<whole number>' <unit>, with one of "
            f"{', '.join(INTERVAL_UNITS)}"
        )
    return number, name


def _function(reader: Reader, node: exp.Anonymous) -> Expr:
    name = str(node.this).lower()
    if name == "now" and not node.expressions:
        return _timestamp(reader, node)
    if name == "date_sub" and len(node.expressions) == 2:
        date, days = (reader.read(arg) for arg in node.expressions)
        return Call("date_add", (date, _negative(days)))
    name = ALIASES.get(name, name)
    function = FUNCTIONS.get(name)
    if function is None or not (function.called or name == "||"):
        available = ", ".join(sorted(n for n, f in FUNCTIONS.items() if f.called))
        raise _Refused(f"function {node.this}() is not available; there are {available}")
    args = tuple(reader.read(arg) for arg in node.expressions)
    if name == "||" and len(args) > 2:  # concat(a, b, c)
        while len(args) > 2:
            args = (Call("||", args[:2]), *args[2:])
    if len(args) < function.least or (function.most is not None and len(args) > function.most):
        raise _Refused(f"{node.this}() takes other operands: write {function.usage}")
    return Call(name, args)


def _timestamp(reader: Reader, node: exp.Expression) -> Expr:
    if reader.now is None:
        raise _Refused("the current time is not available here: pass a constant")
    return literal(reader.now.astimezone(UTC))


def _date(reader: Reader, node: exp.CurrentDate) -> Expr:
    if reader.now is None or node.this is not None:
        raise _Refused("the current date is not available here: pass a constant")
    return literal(reader.now.astimezone(UTC).date())


def _cast(reader: Reader, node: exp.Cast) -> Expr:
    if node.args.get("format") or node.args.get("default"):
        raise _Refused("cast with a format is not available")
    tree, type_ = reader.read(node.this), _type(node.args["to"])
    if not isinstance(tree, Literal):
        return Cast(tree, type_)
    if tree.type == "string" and type_ == "timestamp" and tree.value is not None:
        # A literal without a zone keeps that it had none: it means UTC to a column with
        # a zone and itself to one without.
        moment = cast_value(tree.value, "timestamp")
        return literal(moment) if parse_timestamp(tree.value).tzinfo else _zoneless(moment)
    return literal_of(type_, cast_value(value_of(tree), type_))


def _zoneless(moment: object) -> Literal:
    assert isinstance(moment, datetime)
    return Literal("timestamp", moment.replace(tzinfo=None).isoformat(sep=" "))


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
    raise _Refused(
        f"cast to {node.sql()} is not available: use {', '.join(sorted(set(_TYPES.values())))} "
        "or decimal(p,s)"
    )


_READERS: dict[type, Callable[[Reader, Any], Expr]] = {
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
    exp.Like: _negated("like"),
    exp.ILike: _negated("ilike"),
    exp.Escape: _escape,
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
    exp.Anonymous: _function,
    exp.CurrentTimestamp: _timestamp,
    exp.CurrentDate: _date,
}

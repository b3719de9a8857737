"""The expressions that have the same meaning in DuckDB's SELECT as in the language.

They are found by a list of constructs that are known to be the same, with the types of their
operands: any construct that is not listed counts as different.
``tests/property/sql/test_same_rows.py`` compares the list with DuckDB. If only one of the two
raises, no user changes rows without having seen them; so that counts as the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import Schemas, TypedNode, bind, typed_nodes, unified
from lakevilla.sql.expressions.evaluate import is_true
from lakevilla.sql.expressions.parse import Meaning, StatementExpressions
from lakevilla.sql.expressions.tree import Call, Case, Cast, Expr, Literal, columns
from lakevilla.sql.expressions.types import (
    decimal_parts,
    element_type,
    is_decimal,
    is_fractional,
    is_integer,
    is_nested,
)
from lakevilla.sql.statements.meaning.spellings import SPELLINGS
from lakevilla.sql.statements.select import Dialect

#: Return whether a node has the same meaning, by its operands' types.
_Test = Callable[[Call, Sequence[str]], bool]


class OtherMeaning(Exception):
    """The error for a text with another meaning in a SELECT; ``str()`` names the part and an
    alternative.
    """


def meaning_in(dialect: Dialect) -> Meaning | None:
    """Return the meaning that texts of that SQL must have; None: the language's own."""
    return Meaning(SPELLINGS, refuse_other_meaning) if dialect == "duckdb" else None


def other_meaning(
    texts: StatementExpressions, schemas: Schemas, alias: str | None = None
) -> OtherMeaning | None:
    """Return the other meaning that one of a statement's texts has in a SELECT; None if none has.

    Raises
    ------
    InvalidOperation
        A text can't be bound to these columns.
    """
    try:
        texts.check(schemas, alias)
    except OtherMeaning as other:
        return other
    return None


def refuse_other_meaning(
    trees: Iterable[Expr], written: Iterable[Expr], schemas: Schemas, alias: str | None = None
) -> None:
    """Raise if one of the expressions may have another meaning in a SELECT.

    Parameters
    ----------
    trees : iterable of Expr
        Unbound.
    written : iterable of Expr
        The parts of the texts that differ from the trees; see ``Reader.written``.
    schemas : Schemas
        The columns that the expressions may refer to.
    alias : str, optional
        A name by which columns of a single schema may be qualified.

    Raises
    ------
    OtherMeaning
    """
    names: set[str] = set()
    for node in written:
        if isinstance(node, Call) and node.args:
            _check_between(node, schemas, alias)
        elif isinstance(node, Call):
            names.add(node.name)
        elif isinstance(node, Cast) and isinstance(node.arg, Literal):
            _check_cast(node, node.arg.type)
    for name in sorted(names - SAME_NAMES - SPELLINGS.keys() - {"element_at"}):
        raise OtherMeaning(_of_name(name))
    for tree in trees:
        found = typed_nodes(tree, schemas, alias=alias)
        for typed in found:
            _check(typed, names)
        if any(isinstance(one.node, Cast) and _is_text(one.node.type) for one in found):
            _check_digits(found)


def _check(typed: TypedNode, names: Set[str]) -> None:
    node, types = typed.node, typed.types
    if isinstance(node, Cast):
        _check_cast(node, types[0])
    elif isinstance(node, Case):
        if not _in_common(types) or _stays_exact(node, _values(node), types):
            raise OtherMeaning(_of_types("case", types))
    elif not (test := _CALLS.get(node.name, _never))(node, types):
        raise OtherMeaning(_of_name(node.name) if test is _never else _of_types(node.name, types))
    elif node.name in names and node.name == "element_at" and types[0].startswith("map<"):
        raise OtherMeaning(_of_name(node.name))


def _check_between(node: Call, schemas: Schemas, alias: str | None) -> None:
    """Refuse a BETWEEN whose operands DuckDB compares as other values than the language.

    DuckDB converts all three operands to one type; the language converts those that it compares.
    """
    *_, typed = typed_nodes(Call("in", node.args), schemas, alias=alias)
    exact = any(
        not is_fractional(type_) and type_ != "void" and not isinstance(arg, Literal)
        for arg, type_ in zip(node.args, typed.types, strict=True)
    )
    mixed = not _compared(Call("in", node.args), typed.types)
    if mixed or (exact and any(is_fractional(type_) for type_ in typed.types)):
        raise OtherMeaning(_of_types("between", typed.types))


def _check_cast(node: Cast, type_: str) -> None:
    if not _casts_alike(node, type_):
        raise OtherMeaning(_of_cast(type_, node.type))


def _check_digits(found: Iterable[TypedNode]) -> None:
    """Refuse values that are equal numbers of which one has more digits as text.

    Next to a constant with a fraction of zeros, each number has such a fraction in DuckDB.
    """
    for one in found:
        node, types = one.node, one.types
        if isinstance(node, Cast) or not (isinstance(node, Case) or node.name in _ONE_OF_MANY):
            continue
        args = _values(node) if isinstance(node, Case) else node.args
        scale = _scale(unified(node, args, types))
        if any(isinstance(arg, Literal) and _scale(arg.type) > scale for arg in args):
            raise OtherMeaning(_of_types("case" if isinstance(node, Case) else node.name, types))


def _is_text(type_: str) -> bool:
    inner = element_type(type_)
    return type_ == "string" or (inner is not None and _is_text(inner))


def _scale(type_: str) -> int:
    return decimal_parts(type_)[1] if is_decimal(type_) else 0


# ------------------------------------------------------------------ known to be the same


def _always(node: Call, types: Sequence[str]) -> bool:
    return True


def _never(node: Call, types: Sequence[str]) -> bool:
    return False


def _no_floats(node: Call, types: Sequence[str]) -> bool:
    """Return whether no operand is a FLOAT.

    Next to a FLOAT, DuckDB computes in single precision, the language in double.
    """
    return "float" not in types


def _remainder(node: Call, types: Sequence[str]) -> bool:
    """Return whether a remainder has the same value in DuckDB.

    DuckDB computes with doubles if the two decimals do not fit 38 digits together.
    """
    long = (is_decimal(type_) and decimal_parts(type_)[0] > 18 for type_ in types)
    return "float" not in types and not any(long)


def _compared(node: Call, types: Sequence[str]) -> bool:
    """Return whether a comparison has the same result in DuckDB.

    DuckDB compares a FLOAT in single precision with any value that is no DOUBLE, and in double
    precision throughout with a list that has a DOUBLE. The language compares it with each value by
    that value's type.
    """
    if any(map(is_nested, types)):
        return len({*types} - {"void"}) == 1
    if _stays_exact(node, node.args, types) and not _exact_in_binary(node.args, types):
        return False
    if "float" not in types:
        return True
    if "double" in types:
        return all(type_ in ("float", "double", "void") for type_ in types)
    return all(
        type_ in ("float", "double", "void") or isinstance(arg, Literal)
        for arg, type_ in zip(node.args, types, strict=True)
    )


def _stays_exact(node: Call | Case, args: Sequence[Expr], types: Sequence[str]) -> bool:
    """Return whether floating-point constants become exact numbers here, but make DuckDB use
    doubles.
    """
    if not any(map(is_fractional, types)) or all(map(is_fractional, types)):
        return False
    return not is_fractional(unified(node, args, types))


def _exact_in_binary(args: Sequence[Expr], types: Sequence[str]) -> bool:
    """Return whether exact numbers compare with floating-point constants alike if they become
    doubles.
    """
    digits = [_digits(type_) for type_ in types if is_integer(type_) or is_decimal(type_)]
    if all(precision <= _EXACT_DIGITS for precision, _ in digits):
        return True
    return all(scale == 0 for _, scale in digits) and all(
        abs(float(arg.value)) < 2**53
        for arg, type_ in zip(args, types, strict=True)
        if is_fractional(type_) and isinstance(arg, Literal) and arg.value is not None
    )


def _digits(type_: str) -> tuple[int, int]:
    return decimal_parts(type_) if is_decimal(type_) else (_WHOLE_DIGITS[type_], 0)


def _values(case: Case) -> list[Expr]:
    found = [value for _, value in case.branches]
    return found if case.otherwise is None else [*found, case.otherwise]


def _common(node: Call, types: Sequence[str]) -> bool:
    return _in_common(types) and not _stays_exact(node, node.args, types)


def _array(node: Call, types: Sequence[str]) -> bool:
    return not _stays_exact(node, node.args, types)


def _in_common(types: Sequence[str]) -> bool:
    """Return whether one of several values has the type of all of them on both sides."""
    known = {type_ for type_ in types if type_ != "void"}
    return "float" not in known or known == {"float"}


def _nullif(node: Call, types: Sequence[str]) -> bool:
    """Return whether a nullif has the same value in DuckDB.

    It has the type of its first operand in DuckDB, and the type of both in the language.
    """
    if not _in_common(types):
        return False
    first, met = types[0], unified(node, node.args, types)
    if first in (met, "void") or (is_integer(first) and is_integer(met)):
        return True
    return is_decimal(first) and is_decimal(met) and _digits(first)[1] == _digits(met)[1]


def _not_whole(node: Call, types: Sequence[str]) -> bool:
    """Return whether floor and ceil have the same value in DuckDB.

    DuckDB converts a whole number to a DOUBLE before it takes the next whole one, and a number in
    single precision to a FLOAT.
    """
    arg = node.args[0]
    if isinstance(arg, Literal) and is_decimal(types[0]):
        return decimal_parts(types[0])[1] > 0  # a whole constant beyond the longs
    return not is_integer(types[0]) and types[0] != "float"


def _equal(node: Call, types: Sequence[str]) -> bool:
    """Return whether an equality has the same result in DuckDB.

    DuckDB checks whether ``date_trunc`` can be equal to a constant at all, and then ignores NULL.
    """
    # https://github.com/duckdb/duckdb/pull/24368
    met = unified(node, node.args, types)
    for cut, other in zip(node.args, reversed(node.args), strict=True):
        if isinstance(cut, Call) and cut.name == "date_trunc" and not columns(other):
            constant = Cast(other, met)
            begins = Call("=", (Call("date_trunc", (cut.args[0], constant)), constant))
            try:
                if not is_true(bind(begins, pa.schema([])), {}):
                    return False
            except InvalidOperation:
                return False
    return _compared(node, types)


def _from_start(node: Call, types: Sequence[str]) -> bool:
    """Return whether the count of characters is a constant that is not negative.

    In DuckDB, a negative count leaves out so many characters at the other end.
    """
    return _whole_constant(node.args[1], 0)


def _place(node: Call, types: Sequence[str]) -> bool:
    return types[0].startswith("map<") or not _whole_constant(node.args[1], 0, 0)


def _power(node: Call, types: Sequence[str]) -> bool:
    """Return whether the power is an exact constant.

    The two sides differ for 1 to a power that is infinite or NaN.
    """
    power = node.args[1]
    return isinstance(power, Literal) and (is_integer(power.type) or is_decimal(power.type))


def _constant(node: Call, types: Sequence[str]) -> bool:
    """Return whether the value is a constant other than NULL.

    For NULL, DuckDB 2 returns whether the array contains NULL.
    """
    sought = node.args[1]
    return isinstance(sought, Literal) and sought.value is not None


def _pattern(node: Call, types: Sequence[str]) -> bool:
    """Return whether RE2 gets the pattern unchanged."""
    text = node.args[1]
    return isinstance(text, Literal) and _PLAIN_PATTERN.fullmatch(text.value or "") is not None


def _whole_constant(arg: Expr, least: int, most: int | None = None) -> bool:
    if not isinstance(arg, Literal) or not is_integer(arg.type) or arg.value is None:
        return False
    return least <= int(arg.value) and (most is None or int(arg.value) <= most)


#: Functions that return one of their operands, in the common type of all operands.
_ONE_OF_MANY = ("array", "coalesce", "greatest", "least", "nullif")
#: The decimal digits that a double keeps of any number; and the most digits of whole numbers.
_EXACT_DIGITS = 15
_WHOLE_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
#: Patterns without signs that Java and RE2 read differently: those that ``.``, ``$`` and ``\\s``
#: match.
_PLAIN_PATTERN = re.compile(r"(?:[^.$\\]|\\[dwtn.$|()\[\]{}*+?^\\-])*")

#: The tests by a call's name in the tree. Logarithms are not among them: DuckDB 2 has some of
#: numbers below 0.
_CALLS: Mapping[str, _Test] = {
    **dict.fromkeys(("and", "or", "not", "is_null"), _always),
    "array": _array,
    **dict.fromkeys(("=", "<>"), _equal),
    **dict.fromkeys(("<", "<=", ">", ">=", "<=>", "in"), _compared),
    **dict.fromkeys(("+", "-", "*", "/", "neg", "abs"), _no_floats),
    "%": _remainder,
    **dict.fromkeys(("coalesce", "greatest", "least"), _common),
    "nullif": _nullif,
    **dict.fromkeys(("floor", "ceil"), _not_whole),
    "round": _no_floats,
    **dict.fromkeys(("left", "right"), _from_start),
    "element_at": _place,
    "power": _power,
    "array_contains": _constant,
    **dict.fromkeys(("regexp_like", "regexp_extract"), _pattern),
    **dict.fromkeys(
        (
            *("like", "ilike", "||", "add_interval", "date_add", "trim", "ltrim", "rtrim"),
            *("length", "lower", "upper", "substring", "replace", "starts_with", "ends_with"),
            *("contains", "year", "month", "day", "hour", "minute", "second", "quarter"),
            *("weekofyear", "dayofyear", "last_day", "make_date", "date_trunc", "instr"),
            *("concat_ws", "translate", "md5", "sha1", "sha2", "size", "lpad"),
            *("rpad", "split_part", "exp", "sqrt"),
            # DuckDB has no function with these names, or none with so many operands.
            *(
                "struct",
                "map",
                "initcap",
                "datediff",
                "add_months",
                "date_format",
                "to_date",
                "to_timestamp",
            ),
            *("to_timestamp_ntz", "get", "get_json_object", "sign", "dayofweek"),
        ),
        _always,
    ),
}

#: Function names that, as they are written, have the same meaning here as in DuckDB, if it has
#: them.
SAME_NAMES = frozenset(
    {
        *("abs", "mod", "coalesce", "ifnull", "nvl", "nullif", "greatest", "least", "floor"),
        *("ceil", "ceiling", "round", "left", "right", "trim", "ltrim", "rtrim", "length"),
        *("char_length", "character_length", "lower", "lcase", "upper", "ucase", "substring"),
        *("substr", "replace", "starts_with", "startswith", "ends_with", "endswith", "contains"),
        *("year", "month", "day", "dayofmonth", "day_of_month", "hour", "minute", "second"),
        *("quarter", "week", "weekofyear", "dayofyear", "last_day", "make_date", "date_trunc"),
        *("instr", "strpos", "position", "locate", "concat_ws", "translate", "md5", "sha1", "sha"),
        *("sha2", "sha256", "size", "array_size", "array_length", "cardinality", "len"),
        *("lpad", "rpad", "split_part", "exp", "sqrt"),
        *("power", "pow", "regexp_like", "regexp_matches", "regexp", "rlike"),
        *("regexp_extract", "initcap", "datediff", "date_diff", "add_months", "date_format"),
        *("to_date", "to_timestamp", "to_timestamp_ntz", "date", "date_add", "date_sub", "get"),
        *("get_json_object", "if", "iff", "nvl2", "isnull", "isnotnull", "array", "now"),
        "signum",
    }
)


def _casts_alike(node: Cast, type_: str) -> bool:
    to = node.type
    if type_ in (to, "void") or (is_integer(type_) and is_integer(to)):
        return True
    if is_integer(to):
        return type_ in ("string", "boolean") or _is_whole(node.arg, type_)
    if is_decimal(to):
        return not is_fractional(type_)
    return to != "string" or type_ != "date" or _is_day(node.arg)


def _is_day(arg: Expr) -> bool:
    """Return whether a date is one in DuckDB: an interval or ``date_trunc`` makes a timestamp."""
    if isinstance(arg, Case):
        return all(map(_is_day, _values(arg)))
    if isinstance(arg, Call) and arg.name in _ONE_OF_MANY:
        return all(map(_is_day, arg.args))
    return not (isinstance(arg, Call) and arg.name in ("add_interval", "date_trunc"))


def _is_whole(arg: Expr, type_: str) -> bool:
    """Return whether a value has no fraction, by its expression or type."""
    if isinstance(arg, Call) and arg.name in ("floor", "ceil", "round"):
        return len(arg.args) == 1
    return is_decimal(type_) and decimal_parts(type_)[1] == 0


# ------------------------------------------------------------------ messages for the rest

#: Advice for functions whose namesakes in DuckDB have another meaning.
_INSTEAD = {
    "regexp_replace": "the first match alone is replaced there",
    "split": "it takes plain text there, and no pattern: write split_part(a, between, n)",
    "reverse": "letters keep their accents there",
    "to_json": "fields that are NULL are left in there",
    "element_at": "it gives a list there: write a['key']",
    "sign": "it is 0 of NaN there: compare with 0",
}


def _of_cast(type_: str, to: str) -> str:
    advice = "compute it before"
    if is_integer(to):
        advice = f"it rounds there: write cast(round(x) as {to}), floor(x) or ceil(x)"
    elif to == "string":
        advice = "it has a time there: write cast(cast(x as date) as string)"
    elif is_decimal(to):
        advice = "it rounds in binary there: cast to decimal by way of round, or compute it before"
    return f"a cast of {type_} to {to} means something else in a SELECT; {advice}"


def _of_name(name: str) -> str:
    known = _INSTEAD.get(name, "compute it in a query, or before")
    return f"{name} means something else in a SELECT; {known}"


def _of_types(name: str, types: Sequence[str]) -> str:
    known = " and ".join(dict.fromkeys(types))
    advice = "compute it in a query"
    if "float" in types:
        advice = "cast what is float to double"
    elif any(map(is_fractional, types)):
        advice = "write constants without e0"
    elif any(map(is_decimal, types)):
        advice = "write constants with no more digits than the other operands"
    return f"{name} of {known} means something else in a SELECT; {advice}"

"""Functions of text."""

from __future__ import annotations

from lakevilla.engines.spark.columns.coercion import Typed
from lakevilla.engines.spark.columns.functions.making import (
    Language,
    Maker,
    check_count,
    constant_of,
    exactly,
    wants,
)
from lakevilla.engines.spark.columns.nodes import AS_TEXT, refused
from lakevilla.sql.expressions.tree import Call
from lakevilla.sql.expressions.values import literal


def _concat(lang: Language, args: list[Typed]) -> Typed:
    if len(args) < 2:
        raise refused(f"concat() of {len(args)} operands", AS_TEXT)
    whole = wants("concat", args[0], "string").expr
    for arg in args[1:]:
        whole = Call("||", (whole, wants("concat", arg, "string").expr))
    return Typed(whole, "string")


def _concat_ws(lang: Language, args: list[Typed]) -> Typed:
    if len(args) < 2:
        raise refused(f"concat_ws() of {len(args)} operands", AS_TEXT)
    return lang.call("concat_ws", [wants("concat_ws", arg, "string") for arg in args], "string")


def _substring(lang: Language, args: list[Typed]) -> Typed:
    check_count("substring", args, 2, 3)
    wants("substring", args[0], "string")
    numbers = [constant_of("substring", arg, int) for arg in args[1:]]
    start = numbers[0]
    assert isinstance(start, int)
    if start < 1:
        raise refused(f"substring() from {start}", "it begins at 1, or use F.right")
    if len(numbers) == 2 and isinstance(numbers[1], int):
        numbers[1] = max(numbers[1], 0)
    return lang.plain("substring", [args[0].expr, *map(literal, numbers)], "string")


def _trim(name: str) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        if len(args) != 1:
            raise refused(f"{name}() of other characters than spaces", AS_TEXT)
        return lang.call(name, [wants(name, args[0], "string")], "string")

    return make


def _replace(lang: Language, args: list[Typed]) -> Typed:
    check_count("replace", args, 2, 3)
    exprs = [wants("replace", arg, "string").expr for arg in args]
    return lang.plain("replace", [*exprs, literal("")][:3], "string")


def _found_at(lang: Language, args: list[Typed]) -> Typed:
    """``locate(part, text, start)``."""
    check_count("locate", args, 2, 3)
    if len(args) == 3 and constant_of("locate", args[2], int) != 1:
        raise refused("locate() from another place than 1", AS_TEXT)
    part, text = (wants("locate", arg, "string") for arg in args[:2])
    return lang.call("instr", [text, part], "integer")


def _split(lang: Language, args: list[Typed]) -> Typed:
    check_count("split", args, 2, 3)
    if len(args) == 3:
        limit = constant_of("split", args[2], int)
        if not isinstance(limit, int) or limit > 0:
            raise refused(f"split() into {limit} parts", AS_TEXT)
    return lang.call("split", [wants("split", a, "string") for a in args[:2]], "array<string>")


def _pad(name: str) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, 2, 3)
        wants(name, args[0], "string")
        constant_of(name, args[1], int)
        return lang.call(name, args, "string")

    return make


def _digest(name: str) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        wants(name, args[0], "string", "binary")
        return lang.call(name, args, "string")

    return make


TEXT: dict[str, Maker] = {
    **{name: exactly(name, ["string"]) for name in ("lower", "upper", "initcap", "reverse")},
    "lcase": exactly("lower", ["string"]),
    "ucase": exactly("upper", ["string"]),
    **{name: _trim(name) for name in ("trim", "ltrim", "rtrim")},
    **{
        name: exactly(name, ["string"], "integer", "length")
        for name in ("length", "len", "char_length", "character_length")
    },
    "concat": _concat,
    "concat_ws": _concat_ws,
    "substring": _substring,
    "substr": _substring,
    "replace": _replace,
    **{
        name: exactly(name, ["string", "string"], "boolean", to)
        for name, to in (
            ("startswith", "starts_with"),
            ("endswith", "ends_with"),
            ("contains", "contains"),
            ("rlike", "regexp_like"),
            ("regexp_like", "regexp_like"),
            ("regexp", "regexp_like"),
        )
    },
    "left": exactly("left", ["string", "int"]),
    "right": exactly("right", ["string", "int"]),
    "lpad": _pad("lpad"),
    "rpad": _pad("rpad"),
    "translate": exactly("translate", ["string"] * 3),
    "instr": exactly("instr", ["string", "string"], "integer"),
    "locate": _found_at,
    "position": _found_at,
    "split_part": exactly("split_part", ["string", "string", "int"]),
    "split": _split,
    "regexp_replace": exactly("regexp_replace", ["string"] * 3),
    "regexp_extract": exactly("regexp_extract", ["string", "string", "int"]),
    "md5": _digest("md5"),
    "sha": _digest("sha1"),
    "sha1": _digest("sha1"),
    "sha2": _digest("sha2"),
}

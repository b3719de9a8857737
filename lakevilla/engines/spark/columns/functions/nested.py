"""Functions of arrays."""

from __future__ import annotations

from lakevilla.engines.spark.columns.coercion import Typed, common
from lakevilla.engines.spark.columns.functions.making import Language, Maker, check_count, wants
from lakevilla.engines.spark.columns.nodes import AS_TEXT, refused
from lakevilla.sql.expressions.tree import Literal
from lakevilla.sql.expressions.types import element_type


def _array(lang: Language, args: list[Typed]) -> Typed:
    exprs, type_ = lang.met(args, "array")
    return lang.plain("array", exprs, f"array<{type_}>")


def _element(name: str, to: str) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, 2)
        element = element_type(args[0].type)
        if element is None:
            raise refused(f"{name}() of {args[0].type}", AS_TEXT)
        wants(name, args[1], "byte", "short", "integer")
        return lang.call(to, args, element)

    return make


def _size(lang: Language, args: list[Typed]) -> Typed:
    if not lang.terms.ansi:
        raise refused("size()", "without ANSI mode it is -1 for NULL in Spark: use array_size")
    return lang.call("size", args, "integer")


def _array_size(lang: Language, args: list[Typed]) -> Typed:
    if element_type(args[0].type) is None:
        raise refused(f"array_size() of {args[0].type}", AS_TEXT)
    return lang.call("size", args, "integer")


def _contains(lang: Language, args: list[Typed]) -> Typed:
    check_count("array_contains", args, 2)
    element = element_type(args[0].type)
    if element is None or common([Typed(Literal("void"), element), args[1]], "array_contains",
                                 lang.terms) != element:  # fmt: skip
        raise refused(
            f"array_contains() of {args[0].type} and {args[1].type}",
            "cast the value to the type of the elements",
        )
    return lang.call("array_contains", args, "boolean")


NESTED: dict[str, Maker] = {
    "array": _array,
    "get": _element("get", "get"),
    "try_element_at": _element("try_element_at", "element_at"),
    "size": _size,
    "cardinality": _size,
    "array_size": _array_size,
    "array_contains": _contains,
}

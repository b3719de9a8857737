"""Functions of text: its parts, its letters, patterns, and digests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from lakevilla.sql.expressions.functions.core import lower, upper
from lakevilla.sql.expressions.functions.declaring import (
    Function,
    Resolution,
    WrongTypes,
    constant_integer,
    constant_text,
    fixed,
)
from lakevilla.sql.expressions.functions.patterns import (
    Pattern,
    last_break_cut,
    pattern,
    replacement,
)
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.expressions.types import is_integer

#: The most characters to which text is filled up.
MOST_PADDED = 1_000_000


def _string(type_: str) -> None:
    if type_ not in ("string", "void"):
        raise WrongTypes("a string")


def _side(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    _string(types[0])
    if not is_integer(types[1]) and types[1] != "void":
        raise WrongTypes("a string and an integer")
    return ["string", "long"], "string"


def _pad(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    _string(types[0])
    if constant_integer(args[1], 0) > MOST_PADDED:
        raise WrongTypes(f"a constant length of at most {MOST_PADDED}")
    if len(args) == 3 and not constant_text(args[2], "a constant text to fill up with"):
        raise WrongTypes("a text to fill up with that is not empty")
    return ["string", *types[1:]], "string"


def _split_part(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    _string(types[0])
    if not constant_text(args[1], "a constant text between the parts"):
        raise WrongTypes("a text between the parts that is not empty")
    if not 0 < abs(constant_integer(args[2], -(2**31))) < 2**31:
        raise WrongTypes("the number of a part: 1 is the first, -1 the last")
    return ["string", *types[1:]], "string"


def _pattern(arg: Expr) -> Pattern:
    return pattern(constant_text(arg, "a constant string as the pattern"))


def _regexp_like(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    _string(types[0])
    _pattern(args[1])
    return ["string", "string"], "boolean"


def _without_dollar(found: Pattern) -> Pattern:
    if found.dollar:
        raise WrongTypes(
            r"a pattern without $, which Java takes for the place before a last line break too: "
            r"write \z for the end of the text, \$ for a $"
        )
    return found


def _regexp_extract(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    _string(types[0])
    found = _without_dollar(_pattern(args[1]))
    if constant_integer(args[2], 0) > min(found.groups, 9):
        raise WrongTypes(f"one of the {found.groups} groups of the pattern, or 0 for all of it")
    return ["string", *types[1:]], "string"


def _regexp_replace(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    _string(types[0])
    found = _without_dollar(_pattern(args[1]))
    if found.empty:
        raise WrongTypes("a pattern that the empty text does not match")
    replacement(constant_text(args[2], "a constant string as the replacement"), found.groups)
    return ["string", "string", "string"], "string"


def _split(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    _string(types[0])
    text = constant_text(args[1], "a constant string as the pattern")
    if text in (".", "|", "*", "+", "?", "$", "^"):
        raise WrongTypes(f"a pattern: write '[{text}]' for the character itself")
    found = pattern(text)
    if found.empty or found.anchored or found.groups:
        raise WrongTypes(
            "a pattern without (groups), ^ and $, that the empty text does not match; (?:...) is "
            "no group"
        )
    return ["string", "string"], "array<string>"


def _digest(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if types[0] not in ("string", "binary", "void"):
        raise WrongTypes("a string or binary")
    if len(args) == 2 and constant_integer(args[1], 0) not in (0, 256):
        raise WrongTypes("256 bits (or 0, which means 256): DuckDB has no other")
    return ["string" if types[0] == "void" else types[0], *types[1:]], "string"


TEXT: dict[str, Function] = {
    "left": Function("left(a, n)", "string", "the first n characters; '' if n < 1", 2, 2, _side),
    "right": Function("right(a, n)", "string", "the last n characters; '' if n < 1", 2, 2, _side),
    "lpad": Function("lpad(a, n), lpad(a, n, fill)", "string", "filled up on the left to n "
                     "characters, or its first n; n and fill are constants, fill is a space if not "
                     f"given; n at most {MOST_PADDED}", 2, 3, _pad, duckdb="lpad(a, n, fill)"),
    "rpad": Function("rpad(a, n), rpad(a, n, fill)", "string", "as lpad, on the right", 2, 3, _pad,
                     duckdb="rpad(a, n, fill)"),
    "initcap": Function("initcap(a)", "string", "the first letter of each word upper, the others "
                        "lower; words end at spaces (U+0020)", 1, 1, fixed(("string",), "string"),
                        duckdb="none"),
    "reverse": Function("reverse(a)", "string", "its characters (code points) from the last to "
                        "the first", 1, 1, fixed(("string",), "string"),
                        duckdb="reverse(a), of letters with their accents"),
    "translate": Function("translate(a, from, to)", "string", (
        "each character of `from` becomes that of `to` at its place, or is deleted"
    ), 3, 3,
                          fixed(("string",), "string")),
    "instr": Function("instr(a, b)", "long", "where b begins first, from 1; 0: nowhere; also "
                      "strpos(a, b), position(b in a), position(b, a), locate(b, a)", 2, 2,
                      fixed(("string",), "long")),
    "concat_ws": Function("concat_ws(between, a, ...)", "string", "NULLs are left out; NULL if "
                          "`between` is", 1, None, fixed(("string",), "string")),
    "split_part": Function("split_part(a, between, n)", "string", "the n-th part, from the end if "
                           "n < 0; '' if there is none; `between` is plain text, and constant, as "
                           "is n", 3, 3, _split_part),
    "split": Function("split(a, 'pattern')", "array of string", "between the matches of a pattern, "
                      "empty parts too", 2, 2, _split, duckdb="string_split_regex(a, 'pattern')"),
    "regexp_like": Function("regexp_like(a, 'pattern')", "boolean", "whether some part of it "
                            "matches; also `a rlike b`, regexp(a, b), regexp_matches(a, b)",
                            2, 2, _regexp_like, duckdb="regexp_matches(a, 'pattern')"),
    "regexp_replace": Function("regexp_replace(a, 'pattern', 'with')", "string", "all matches; $1 "
                               "to $9 in the replacement are groups", 3, 3, _regexp_replace,
                               duckdb="regexp_replace(a, 'pattern', 'with', 'g')"),
    "regexp_extract": Function("regexp_extract(a, 'pattern', group)", "string", "a group (0: all) "
                               "of the first match, '' if there is none; the group must be "
                               "written", 3, 3, _regexp_extract),
    "md5": Function("md5(a)", "string", "hexadecimal, lower case, of UTF-8 or bytes", 1, 1,
                    _digest),
    "sha1": Function("sha1(a)", "string", "as md5; also sha(a)", 1, 1, _digest),
    "sha2": Function("sha2(a, 256)", "string", "as md5; only 256 bits; also sha256(a)", 2, 2,
                     _digest, duckdb="sha256(a)"),
}  # fmt: skip


def _matches(text: str, regexp: str) -> bool:
    found = pattern(regexp)
    return found.is_in(text) or (found.dollar and found.is_in(last_break_cut(text)))


def _replaced(text: str, regexp: str, with_: str) -> str:
    found = pattern(regexp)
    template = replacement(with_, found.groups)
    return found.replaced(text, template)


def _extracted(text: str, regexp: str, group: int) -> str:
    return pattern(regexp).first(text, group)


def _pieces(text: str, regexp: str) -> list[str]:
    return pattern(regexp).split(text)


def _part_of(text: str, between: str, number: int) -> str:
    parts = text.split(between)
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def _padded(left: bool) -> Callable[..., str]:
    def pad(text: str, length: int, fill: str = " ") -> str:
        missing = max(0, length - len(text))
        more = (fill * (missing // len(fill) + 1))[:missing]
        return (more + text if left else text + more)[:length]

    return pad


def _initcap(text: str) -> str:
    return " ".join(upper(word[:1]) + lower(word[1:]) for word in text.split(" "))


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, str] = {}
    for at, char in enumerate(old):
        table.setdefault(ord(char), new[at : at + 1])
    return text.translate(table)


def _hashed(name: str) -> Callable[..., str]:
    def digest(value: str | bytes, bits: int = 0) -> str:
        data = value.encode() if isinstance(value, str) else value
        return hashlib.new(name, data, usedforsecurity=False).hexdigest()

    return digest


#: The meaning of each function for operands that are not NULL.
TEXT_MEANINGS: dict[str, Callable[..., Any]] = {
    "left": lambda a, n: a[: max(0, n)],
    "right": lambda a, n: a[-n:] if n > 0 else "",
    "lpad": _padded(True),
    "rpad": _padded(False),
    "initcap": _initcap,
    "reverse": lambda a: a[::-1],
    "translate": _translate,
    "instr": lambda a, b: a.find(b) + 1,
    "split_part": _part_of,
    "split": _pieces,
    "regexp_like": _matches,
    "regexp_replace": _replaced,
    "regexp_extract": _extracted,
    "md5": _hashed("md5"),
    "sha1": _hashed("sha1"),
    "sha2": _hashed("sha256"),
}

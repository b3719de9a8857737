r"""Regular expressions that Java, RE2 and Python read alike, with Java's meaning.

A pattern is parsed here and written again, so that nothing that an engine adds by itself gets in:
``.`` and ``\s`` become the classes that they are in Java. Features in which engines differ are
refused by name: look-around, back-references, flags, ``\b`` (engines define a word differently),
possessive counts, repeats of parts that may be empty, classes within classes.

In Java ``$`` is the end of the text, or the place before a line break that ends it. RE2 has no such
place. As ``$`` may only be the last character, a text has a match if it has one that ends at
``\z``, itself or without its last line break (``LAST_BREAK``).

Results here are computed by Arrow's RE2, in time that grows with the text. Python's own module
would try ``(a+)+$`` at "aaaa..." in twice as many ways for each additional letter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.cast import scalar
from lakevilla.sql.expressions.functions.declaring import WrongTypes

#: The line break that ends a text, for every engine.
LAST_BREAK = "(?:\r\n|[\n\r\x85\u2028\u2029])\\z"

_LAST_BREAK = re.compile(LAST_BREAK.replace(r"\z", r"\Z"))
_ANY = "[^\n\r\x85\u2028\u2029]"
_END = "\\z"
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": "\t\n\x0b\f\r "}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_COUNT = re.compile(r"\{([0-9]{1,4})(,([0-9]{1,4})?)?\}")
#: The most parts of a pattern when its repeats are written out: RE2 gives up at some size.
_MOST_PARTS = 1000
_GROUPS = re.compile(r"\$([0-9]?)([0-9]?)")


@dataclass(frozen=True, slots=True)
class Pattern:
    r"""A pattern, as every engine reads it.

    Attributes
    ----------
    text : str
        For RE2; the end of the text is ``\z``.
    groups : int
    empty : bool
        Whether it matches the empty text somewhere.
    dollar : bool
        Whether ``$`` was written: ``text`` has ``\z`` there.
    anchored : bool
        Whether it has ``^``, ``$`` or ``\z``.
    """

    text: str
    groups: int
    empty: bool
    dollar: bool
    anchored: bool

    def is_in(self, text: str) -> bool:
        """Return whether some part of a text matches."""
        found: bool = pc.match_substring_regex(scalar(text, _TEXT), self.text).as_py()
        return found

    def first(self, text: str, group: int) -> str:
        """Return a group of the first match, 0 for all of it; "" if there is none."""
        named = _with_name(self.text, group)
        found = pc.extract_regex(scalar(text, _TEXT), named).as_py()
        return "" if found is None else found["one"] or ""

    def replaced(self, text: str, template: str) -> str:
        """Return a text with ``template``, a result of ``replacement``, for each match."""
        found: str = pc.replace_substring_regex(scalar(text, _TEXT), self.text, template).as_py()
        return found

    def split(self, text: str) -> list[str]:
        """Return the texts between the matches."""
        found: list[str] = pc.split_pattern_regex(scalar(text, _TEXT), self.text).as_py()
        return found


_TEXT = pa.string()


@lru_cache(maxsize=256)
def _with_name(text: str, group: int) -> str:
    """Return a pattern in which only that group is a group, with a name: Arrow accepts no others.

    A ( that is no escape begins a group; within classes it is an escape.
    """
    numbers = count(1)

    def opened(match: re.Match[str]) -> str:
        if match[0] != "(":
            return match[0]
        return "(?P<one>" if next(numbers) == group else "(?:"

    inner = re.sub(r"\\.|\((?!\?)", opened, text, flags=re.DOTALL)
    return inner if group else f"(?P<one>{inner})"


def last_break_cut(text: str) -> str:
    """Return a text without the line break that ends it."""
    return _LAST_BREAK.sub("", text)


@lru_cache(maxsize=256)
def pattern(text: str) -> Pattern:
    """Read a pattern.

    Raises
    ------
    WrongTypes
        Names a feature that engines read differently, or that none of them reads.
    """
    return _PatternReader(text).read()


def replacement(text: str, groups: int) -> str:
    r"""Return a replacement for RE2 and Python: ``$1`` becomes ``\1``.

    Raises
    ------
    WrongTypes
        A backslash, a ``$`` that names no group, or one that could name two.
    """
    if "\\" in text:
        raise WrongTypes(f"a replacement without a backslash, not {text!r}: groups are $1 to $9")
    for one, two in _GROUPS.findall(text):
        if not one or two or not 1 <= int(one) <= groups:
            raise WrongTypes(
                f"a replacement in which each $ names one of the {groups} groups of the pattern "
                f"by one digit, not {text!r}"
            )
    return _GROUPS.sub(lambda match: "\\" + match[1], text)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a pattern: its text for RE2, whether it may be empty, and its size written out."""

    text: str
    empty: bool = False
    size: int = 1


class _PatternReader:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._groups = text, 0, 0
        self._dollar = self._end = self._start = False
        #: Whether a class or escape matches only one of the two characters of a line break.
        self._splits_breaks = False

    def read(self) -> Pattern:
        if len(self._text) > _MOST_PARTS or "\0" in self._text:
            raise WrongTypes(f"a pattern of at most {_MOST_PARTS} characters, without NUL")
        whole = self._either(0)
        if self._at < len(self._text):
            raise self._wrong(") without a (")
        if self._dollar and (self._end or self._splits_breaks):
            raise self._wrong(r"$ beside \z, \n or \r: write \z")
        anchored = self._dollar or self._end or self._start
        return Pattern(whole.text, self._groups, whole.empty, self._dollar, anchored)

    def _wrong(self, what: str) -> WrongTypes:
        return WrongTypes(
            f"a pattern that engines read alike, and {self._text!r} has {what} (see "
            "docs/expressions.md, Patterns)"
        )

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._next()
        self._at += 1
        return char

    def _either(self, depth: int) -> _Part:
        if depth > 50:
            raise self._wrong("more than 50 groups in each other")
        parts = [self._sequence(depth)]
        while self._next() == "|":
            self._at += 1
            parts.append(self._sequence(depth))
        size = sum(part.size for part in parts)
        return _Part("|".join(p.text for p in parts), any(p.empty for p in parts), size)

    def _sequence(self, depth: int) -> _Part:
        texts, empty, size = [], True, 0
        while self._next() not in ("", "|", ")"):
            part = self._counted(depth)
            texts.append(part.text)
            empty = empty and part.empty
            size += part.size
            if size > _MOST_PARTS:
                raise self._wrong(f"more than {_MOST_PARTS} parts when repeats are written out")
        return _Part("".join(texts), empty, size)

    def _counted(self, depth: int) -> _Part:
        part = self._atom(depth)
        count, least, most = self._count()
        if not count:
            return part
        if part.empty:
            raise self._wrong(f"{count} after what may be empty")
        size = part.size * max(1, most)
        if size > _MOST_PARTS:
            raise self._wrong(f"more than {_MOST_PARTS} parts when repeats are written out")
        if self._next() == "?":
            self._at += 1
            count += "?"
        if self._next() in ("*", "+", "?") or _COUNT.match(self._text, self._at):
            raise self._wrong(f"{self._next()} after {count}")
        return _Part(part.text + count, least == 0, size)

    def _count(self) -> tuple[str, int, int]:
        """Return a count as written, its least value, and its greatest if that makes the pattern
        larger.
        """
        char = self._next()
        if char in ("*", "+", "?") and char:
            self._at += 1
            return char, int(char == "+"), 1
        if char != "{":
            return "", 1, 1
        match = _COUNT.match(self._text, self._at)
        least = 0 if match is None else int(match[1])
        most = least if match is None or match[3] is None else int(match[3])
        if match is None or most < least or most == 0:
            raise self._wrong(r"a { that is no count: write \{")
        self._at = match.end()
        return match[0], least, most

    def _atom(self, depth: int) -> _Part:
        char = self._take()
        if char == "(":
            return self._group(depth)
        if char == "[":
            return _Part(self._class())
        if char == "\\":
            return self._escape()
        if char == ".":
            return _Part(_ANY)
        if char == "^":
            self._start = True
            return _Part("^", empty=True, size=0)
        if char == "$":
            if depth or self._next() not in ("", "|"):
                raise self._wrong(r"$ before its end: write \z for the end of the text, \$ for $")
            self._dollar = True
            return _Part(_END, empty=True, size=0)
        if char in "*+?{":
            raise self._wrong(f"{char} after nothing: write \\{char}")
        self._splits_breaks |= char in "\n\r"
        return _Part(_literal(char))

    def _group(self, depth: int) -> _Part:
        opened = "("
        if self._next() == "?":
            if self._text[self._at : self._at + 2] != "?:":
                raise self._wrong("(?, a flag or a look-around")
            self._at += 2
            opened = "(?:"
        else:
            self._groups += 1
        inner = self._either(depth + 1)
        if self._take() != ")":
            raise self._wrong("a ( without )")
        return _Part(f"{opened}{inner.text})", inner.empty, inner.size)

    def _escape(self) -> _Part:
        char = self._take()
        if char == "z":
            self._end = True
            return _Part(_END, empty=True, size=0)
        if char.lower() in _CLASSES and char:
            return _Part(f"[{'^' if char.isupper() else ''}{_CLASSES[char.lower()]}]")
        return _Part(_literal(self._escaped(char)))

    def _escaped(self, char: str) -> str:
        if char in _CONTROLS:
            self._splits_breaks |= char in "nr"
            return _CONTROLS[char]
        if not char or not char.isascii() or char.isalnum() or char == "_":
            raise self._wrong(f"\\{char}" if char else "a \\ at its end")
        return char

    def _class(self) -> str:
        negated = self._next() == "^"
        self._at += negated
        parts: list[str] = []
        while (char := self._take()) != "]" or not parts:
            if not char or char == "[" or (char == "]" and not parts):
                raise self._wrong(r"a class that does not end, or [ or ] in it: write \[ or \]")
            if char == "&" and self._next() == "&":
                raise self._wrong("&& in a class")
            if char == "\\" and self._next() in _CLASSES:
                parts.append(_CLASSES[self._take()])
                if self._next() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                    raise self._wrong("- after a class of its own")
                continue
            if char == "-" and parts and self._next() != "]":
                raise self._wrong(r"a - in the middle of a class: write \-")
            parts.append(self._range(self._one(char)))
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def _one(self, char: str) -> str:
        self._splits_breaks |= char in "\n\r"
        return self._escaped(self._take()) if char == "\\" else char

    def _range(self, low: str) -> str:
        """Return a character of a class, or the range that begins with it."""
        rest = self._text[self._at : self._at + 2]
        if len(rest) < 2 or rest[0] != "-" or rest[1] == "]":
            return _literal(low)
        self._at += 1
        if self._next() == "[":
            raise self._wrong(r"[ in a class: write \[")
        char = self._take()
        if char == "\\" and self._next().lower() in _CLASSES:
            raise self._wrong("a range that ends in a class")
        high = self._one(char)
        if high < low:
            raise self._wrong(f"the empty range {low}-{high}")
        self._splits_breaks |= (low <= "\n" <= high) != (low <= "\r" <= high)
        return f"{_literal(low)}-{_literal(high)}"


def _literal(char: str) -> str:
    return char if char.isalnum() or not char.isprintable() or not char.isascii() else f"\\{char}"

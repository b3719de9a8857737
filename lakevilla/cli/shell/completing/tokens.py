"""A text that is being typed, as tokens; it may end in the middle of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["word", "quoted", "string", "comment", "number", "mark"]

_TOKEN = re.compile(
    r"""
      (?P<comment> --[^\n]*(?P<line_end>\n|$) | /\*.*?(?:\*/|$) )
    | (?P<string>  '(?:[^']|'')*(?:'|$) | \$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|$) )
    | (?P<quoted>  "(?:[^"]|"")*(?:"|$) )
    | (?P<word>    [^\W\d]\w* )
    | (?P<number>  \d[\w.]* )
    | (?P<mark>    [^\s] )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class WrittenToken:
    """``text`` as it is written, from ``start`` on."""

    kind: Kind
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def upper(self) -> str:
        """A keyword, if it can be one."""
        return self.text.upper() if self.kind in ("word", "mark") else ""

    @property
    def name(self) -> str:
        """An identifier without its quotes."""
        if self.kind != "quoted":
            return self.text
        inner = self.text[1:-1] if self.is_closed else self.text[1:]
        return inner.replace('""', '"')

    @property
    def is_closed(self) -> bool:
        """Whether a quote or a comment ends within the text."""
        match self.kind:
            case "quoted":
                return len(self.text) > 1 and self.text.count('"') % 2 == 0
            case "string" if self.text[0] == "'":
                return self.text.count("'") % 2 == 0
            case "string":
                tag = self.text[: self.text.index("$", 1) + 1]
                return len(self.text) >= 2 * len(tag) and self.text.endswith(tag)
            case "comment" if self.text.startswith("--"):
                return self.text.endswith("\n")
            case "comment":
                return len(self.text) > 3 and self.text.endswith("*/")
            case _:
                return True


def tokens_of(text: str) -> list[WrittenToken]:
    """All tokens, comments too."""
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        # Groups inside others are no kinds.
        kind = "comment" if kind == "line_end" else "string" if kind == "tag" else kind
        found.append(WrittenToken(kind, match.group(), match.start()))  # type: ignore[arg-type]
    return found

"""Unicode's simple case mapping: one character for one, where Python may have several."""

from __future__ import annotations

_LOWER = {"\u0130": "i"}
_UPPER = {
    "\u00df": "\u1e9e",
    **{
        chr(at): chr(at + 8) for start in (0x1F80, 0x1F90, 0x1FA0) for at in range(start, start + 8)
    },
    **{chr(at): chr(at + 9) for at in (0x1FB3, 0x1FC3, 0x1FF3)},
}


def lower(text: str) -> str:
    return "".join(
        low if len(low := char.lower()) == 1 else _LOWER.get(char, char) for char in text
    )


def upper(text: str) -> str:
    return "".join(up if len(up := char.upper()) == 1 else _UPPER.get(char, char) for char in text)

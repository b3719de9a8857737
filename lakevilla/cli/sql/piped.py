"""What comes by a pipe."""

from __future__ import annotations

import io
import sys
from typing import TextIO


def piped() -> TextIO:
    """Stdin as UTF-8, as files are, whatever the locale says; empty where it is closed.

    Bytes that are no UTF-8 raise ``UnicodeDecodeError`` when they are read.
    """
    if sys.stdin is None:
        return io.StringIO()
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    return sys.stdin

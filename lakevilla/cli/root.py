"""The first argument of most commands, which the environment may give instead."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperOption

from lakevilla.cli.lakes import names_a_lake

#: The variable that has the root of commands that are called without one.
ROOT_VARIABLE = "LAKEVILLA_ROOT"
#: The beginnings of words that are a root in whatever place: URIs, and paths that say so.
_ROOT_LIKE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[/~]|\.{1,2}(?:/|$)")


class RootCommand(TyperCommand):
    """A command whose root may be left out, if the environment has one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing and args and args[-1] in self._options_with_a_value():
            # A shell completes this option's value. With it the parser would read no argument.
            args = args[:-1]
        root = os.environ.get(ROOT_VARIABLE)
        arguments = [one for one in self.params if one.param_type_name == "argument"]
        if root and arguments and arguments[0].name == "root":
            given, left, _ = self.make_parser(ctx).parse_args(list(args))
            words = [word for one in arguments for word in _words(given.get(one.name))]
            needed = sum(one.required for one in arguments)
            most = None if any(one.nargs == -1 for one in arguments) else len(arguments)
            if leaves_root_out([*words, *left], needed, most):
                args = [root, *args]
        return super().parse_args(ctx, args)

    def _options_with_a_value(self) -> set[str]:
        options = [one for one in self.params if isinstance(one, TyperOption)]
        return {name for one in options if not one.is_flag for name in one.opts}


def leaves_root_out(words: Sequence[str], needed: int, most: int | None) -> bool:
    """Return whether the words of a command begin after its root.

    A command takes ``needed`` words with its root, and at most ``most``. If it could be called
    either way, the first word decides: a URI, a path that begins with ``/``, ``~`` or ``.``, and
    the name of a lake are a root, as they are no name of a table, and no SQL.
    """
    if len(words) < needed:
        return True
    if most is not None and len(words) >= most:
        return False
    return not (_ROOT_LIKE.match(words[0]) or names_a_lake(words[0]))


def _words(value: object) -> list[str]:
    """Return the words of one argument, as the parser has them."""
    if isinstance(value, str):
        return [value]
    return list(value) if isinstance(value, (list, tuple)) else []

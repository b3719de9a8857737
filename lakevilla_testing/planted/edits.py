"""Plant a bug by an edit: a function runs with another text in place of a piece of its own.

A slip of the pen, or of a refactoring, is one changed condition, number or line. Such a bug is told
best by the two texts. The function keeps its identity and gets other code, so each module, table
and partial call that has it runs the edited text.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from lakevilla_testing.planted.bugs import PLANTED, PlantedBug

#: One edit: a text that occurs once in a function, and the text in its place.
Edit = tuple[str, str]


def slip(
    name: str,
    story: str,
    edited: Any,
    *edits: Edit,
    found_by: str = "",
    first_seed: int = 0,
    **focus: Any,
) -> None:
    """Add a planted bug to the register: ``edited`` is the function, or property, with the slip.

    ``found_by`` is the test that fails with it, as pytest names it. Without one, histories find it,
    in the plans that ``focus`` describes.
    """
    function = _function(edited)

    @contextmanager
    def plant() -> Iterator[None]:
        code = function.__code__
        function.__code__ = edited_code(function, edits)
        try:
            yield
        finally:
            function.__code__ = code

    plant.__doc__ = story
    PLANTED[name] = PlantedBug(
        name, plant, focus, first_seed, for_histories=not found_by, found_by=found_by
    )


def edited_code(function: FunctionType, edits: Sequence[Edit]) -> CodeType:
    """Return the code of a function after some edits of its text.

    Raises
    ------
    ValueError
        A text occurs not once in the function: the bug does not fit the library any more.
    """
    lines, first = inspect.getsourcelines(function)
    text = textwrap.dedent("".join(lines))
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{function.__qualname__} has {text.count(old)} times {old!r}")
        text = text.replace(old, new)
    tree = ast.increment_lineno(ast.parse(text), first - 1)
    annotations = __future__.annotations.compiler_flag
    module = compile(tree, function.__code__.co_filename, "exec", annotations, dont_inherit=True)
    found = (one for one in module.co_consts if isinstance(one, CodeType))
    return next(one for one in found if one.co_name == function.__name__)


def _function(edited: Any) -> FunctionType:
    own: Any = edited.fget if isinstance(edited, property) else edited
    function = inspect.unwrap(own)
    assert isinstance(function, FunctionType), edited
    return function

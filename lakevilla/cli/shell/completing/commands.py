"""What may stand at the cursor of a short command."""

from __future__ import annotations

from collections.abc import Iterator

from lakevilla.cli.rendering.look import FORMATS
from lakevilla.cli.shell.completing.names import Names, dotted
from lakevilla.cli.shell.completing.suggestions import Suggestion, SuggestionKind
from lakevilla.cli.shell.short import COMMANDS, Takes


def command_suggestions(before: str, names: Names) -> list[Suggestion]:
    """What may stand behind the text of a line that begins with a backslash or a dot."""
    line = before.lstrip()
    name, space, argument = line.partition(" ")
    if not space:
        return [
            Suggestion(spelt, len(line), "command", one.about)
            for one in COMMANDS
            for spelt in one.names
            if spelt.startswith(line) and spelt[:1] == line[:1]
        ]
    takes: Takes = next((one.takes for one in COMMANDS if name in one.names), "nothing")
    typed = argument.lstrip()
    fits = typed.lower()
    return [
        Suggestion(text, len(typed), kind, "")
        for text, kind in _arguments(takes, typed, names)
        if text.lower().lstrip('"').startswith(fits.lstrip('"'))
    ]


def _arguments(takes: Takes, typed: str, names: Names) -> Iterator[tuple[str, SuggestionKind]]:
    match takes:
        case "table":
            prefix = typed.strip('"').replace(".", "/")
            yield from ((dotted(name), "table") for name in names.tables(prefix))
        case "ref":
            yield from ((name, "ref") for name in names.refs())
        case "file":
            yield from ((path, "file") for path in names.files(typed))
        case "switch":
            yield from (("on", "keyword"), ("off", "keyword"))
        case "format":
            yield from ((form, "keyword") for form in FORMATS)
        case "number" | "value" | "nothing":
            pass

"""The shell's prompt, and its history."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import completion_is_selected, has_focus
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import Output
from pygments.lexers.sql import SqlLexer

from lakevilla.cli.shell.completing import Names, command_suggestions, suggestions

# -------------------- prompt
#
# The prompt in a terminal: typing, completion, colours and history, by prompt_toolkit.


class Prompt:
    """A reader of statements from a terminal.

    Parameters
    ----------
    is_complete : callable
        Returns whether the Enter key runs a text, instead of beginning a new line.
    names : callable
        Returns the present names for completion.
    source, screen : optional
        The input and output of prompt_toolkit; by default, the terminal.
    """

    def __init__(
        self,
        is_complete: Callable[[str], bool],
        names: Callable[[], Names],
        source: Input | None = None,
        screen: Output | None = None,
    ) -> None:
        self.session: PromptSession[str] = PromptSession(
            multiline=True,
            completer=ThreadedCompleter(_Completer(names)),
            complete_while_typing=True,
            lexer=PygmentsLexer(SqlLexer),
            history=_history(),
            key_bindings=_keys(is_complete),
            prompt_continuation=_continuation,
            enable_open_in_editor=True,
            tempfile_suffix=".sql",
            input=source,
            output=screen,
        )

    def read(self, prompt: str, begun: str = "") -> str:
        """Return the next text that the user enters; ``begun`` stands at the prompt already.

        Raises EOFError at Ctrl-D, KeyboardInterrupt at Ctrl-C.
        """
        return self.session.prompt(FormattedText([("class:prompt", prompt)]), default=begun)


class _Completer(Completer):
    def __init__(self, names: Callable[[], Names]) -> None:
        self._names = names

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        before, after = document.text_before_cursor, document.text_after_cursor
        if before.lstrip()[:1] in ("\\", "."):
            found = command_suggestions(before, self._names())
        elif event.text_inserted and not _wants_names(before):
            return  # a menu of all names would only be in the way
        else:
            found = suggestions(before, after, self._names())
        for one in found:
            yield Completion(
                one.text,
                start_position=-one.back,
                display_meta=one.about or one.kind,
            )


def _wants_names(before: str) -> bool:
    """Return whether completion should open by itself: within a name, or after a dot."""
    return before[-1:].isalnum() or before[-1:] in ("_", ".", '"')


class _KeptHistory(FileHistory):
    """A history file for permitted texts; other texts are kept in memory until the shell ends."""

    def store_string(self, string: str) -> None:
        if is_kept(string):
            with contextlib.suppress(OSError):  # a full disk must not end the shell
                super().store_string(string)


def _history() -> History:
    path = history_file(os.environ)
    if path is None or not opened(path):
        return InMemoryHistory()
    return _KeptHistory(path)


def _continuation(width: int, line: int, wrapped: int) -> str:
    return "" if wrapped else "-> ".rjust(width)


def _keys(is_complete: Callable[[str], bool]) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=has_focus("DEFAULT_BUFFER") & ~completion_is_selected)
    def _run_or_go_on(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("enter", filter=completion_is_selected)
    def _take_completion(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    @keys.add("tab")
    def _complete(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        menu = buffer.complete_state
        if menu is None:
            buffer.start_completion(insert_common_part=True)
        elif len(menu.completions) == 1:  # there is only one completion
            buffer.apply_completion(menu.completions[0])
        else:
            buffer.complete_next()

    @keys.add("escape", "enter")
    def _run(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return keys


# -------------------- history
#
# The history file of statements, and texts that are never written to it.


#: Texts with such words are not written to the file.
_SECRET = re.compile(
    r"passw(or)?d|secret|token|credential|access_?key|account_?key|private_?key", re.IGNORECASE
)
#: When a shell begins, a larger file is cut to its newer half.
MOST_BYTES = 1 << 20


def history_file(environment: Mapping[str, str]) -> Path | None:
    """Return a user's history file, by the XDG base directories; None without a home directory."""
    chosen = environment.get("LAKEVILLA_HISTORY")
    if chosen is not None:
        return Path(chosen) if chosen else None
    state = environment.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):  # the XDG specification says to ignore relative paths
        return Path(state) / "lakevilla" / "history"
    home = environment.get("HOME")
    return Path(home) / ".local" / "state" / "lakevilla" / "history" if home else None


def is_kept(text: str) -> bool:
    """Return whether a text may be written to the file.

    As in other shells, a text that begins with a space is not written. Nor is a text that may
    contain a secret.
    """
    return bool(text.strip()) and not text.startswith(" ") and not _SECRET.search(text)


def opened(path: Path) -> bool:
    """Create the file if absent, readable only by its owner; return whether it is writable."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
        _cut(path)
    except OSError:
        return False
    return True


def _cut(path: Path) -> None:
    """Cut a file that has grown too long to its newer half. Entries begin with a line of ``#``."""
    if path.stat().st_size <= MOST_BYTES:
        return
    content = path.read_bytes()
    begin = content.find(b"\n# ", len(content) // 2)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content[begin:] if begin >= 0 else b"")
    beside.replace(path)

"""Progress bars, shown in a terminal or a notebook, and nowhere else."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

from lakevilla.display import shown_text
from lakevilla.lake.context import Event

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class Bars:
    """A listener that shows a line for each long verb while the verb runs.

    Rich is loaded for the first such verb. Where stderr is neither a terminal nor a notebook, or a
    terminal that can't move its cursor, nothing is shown.
    """

    def __init__(self, console: Any = None) -> None:
        self._console = console
        self._forget()

    def _forget(self) -> None:
        """Reset in a forked child, which has its parent's lines and lock, but no thread to draw."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._screen: _Screen | None = None
        self._shown: set[object] = set()

    def __call__(self, event: Event) -> None:
        if event.kind != "progress":
            return
        if self._process != os.getpid():
            self._forget()
        number = event.detail["number"]
        with self._lock:
            if event.detail["state"] != "running":
                self._end(number)
                return
            if self._screen is None:
                self._screen = self._open()
            if self._screen is None:
                return
            self._shown.add(number)
            self._screen.show(number, shown_text(event.message))

    def _open(self) -> _Screen | None:
        from rich.console import Console
        from rich.errors import LiveError

        console = self._console or Console(stderr=True, emoji=False)
        if console.is_jupyter:
            return _Notebook()
        if not console.is_terminal or console.is_dumb_terminal:
            return None
        try:
            return _Terminal(console)
        except LiveError:  # the caller already shows its own live display there
            return None

    def _end(self, number: object) -> None:
        if self._screen is None or number not in self._shown:
            return
        self._shown.discard(number)
        self._screen.hide(number)
        if not self._shown:
            self._screen.close()
            self._screen = None


class _Screen(Protocol):
    """A place where lines are shown."""

    def show(self, number: object, text: str) -> None: ...
    def hide(self, number: object) -> None: ...
    def close(self) -> None: ...


class _Terminal:
    """Lines at the bottom of a terminal, which are removed in the end."""

    def __init__(self, console: Console) -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn

        self._tasks: dict[object, TaskID] = {}
        self._progress: Progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
            # Text that is printed meanwhile goes to stderr, above the lines. That is right only for
            # a stream that is this terminal.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )
        self._progress.start()

    def show(self, number: object, text: str) -> None:
        task = self._tasks.get(number)
        if task is None:
            self._tasks[number] = self._progress.add_task(text, total=None)
        else:
            self._progress.update(task, description=text)

    def hide(self, number: object) -> None:
        self._progress.remove_task(self._tasks.pop(number))

    def close(self) -> None:
        self._progress.stop()


class _Notebook:
    """Lines below a cell.

    Rich's own notebook display needs ipywidgets, which few users have; these lines need nothing.
    """

    def __init__(self) -> None:
        self._texts: dict[object, str] = {}
        self._handle: Any = None

    def show(self, number: object, text: str) -> None:
        self._texts[number] = text
        self._draw()

    def hide(self, number: object) -> None:
        self._texts.pop(number, None)
        self._draw()

    def close(self) -> None:
        pass  # the last drawing is empty

    def _draw(self) -> None:
        from IPython.display import display

        lines = {"text/plain": "\n".join(self._texts.values())}
        if self._handle is None:
            self._handle = display(  # type: ignore[no-untyped-call]
                lines, raw=True, display_id=True
            )
        else:
            self._handle.update(lines, raw=True)

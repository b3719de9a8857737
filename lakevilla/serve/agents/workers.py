"""Processes that run tools, and are ended when a call takes too long.

DuckDB notices an interrupt between the parts of a statement, and one function of one value may take
hours, as the distance of two long texts does. The thread that runs it can't be ended. A process
can, at any moment: a client of a lake may die anywhere.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from queue import Empty, LifoQueue
from typing import Any

from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.serve.agents.answers import Answer
from lakevilla.serve.agents.session import Given
from lakevilla.serve.agents.words import for_agents

_LOG = logging.getLogger("lakevilla.serve.agents")
#: A call is ended after so many times the seconds of a statement, and after these besides.
_TIMES = {"execute": 4, "merge": 20, "rebase": 20}
_OTHERS, _BESIDES = 2, 5.0
#: A process may take so long to begin.
_START_SECONDS = 120.0
_SPAWN = multiprocessing.get_context("spawn")


class Workers:
    """Processes with the tools of a session, one call at a time in each.

    Parameters
    ----------
    given : Given
        The session. Of one that writes there must be one process.
    count : int
        The most processes.
    """

    def __init__(self, given: Given, count: int = 1) -> None:
        self.given = given
        self._all = [_Worker(given) for _ in range(count)]
        self._free: LifoQueue[_Worker] = LifoQueue()
        for one in self._all:
            self._free.put(one)

    @property
    def processes(self) -> list[int | None]:
        """The number of each process; None for one that has not begun."""
        return [one.process for one in self._all]

    def close(self) -> None:
        """End all processes."""
        for one in self._all:
            one.end()

    def call(self, tool: str, *args: Any) -> Answer:
        """Return the answer of a tool.

        Raises
        ------
        InvalidOperation
            The tool refuses the call, took too long, or others are running.
        """
        seconds = self.given.limits.seconds * _TIMES.get(tool, _OTHERS) + _BESIDES
        try:
            worker = self._free.get(timeout=seconds)
        except Empty:
            raise InvalidOperation("other calls are running: send it again later") from None
        try:
            return worker.call(tool, args, seconds)
        finally:
            self._free.put(worker)


class _Worker:
    """One process, which is begun when it is needed."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._process: Any = None
        self._pipe: Any = None

    @property
    def process(self) -> int | None:
        return None if self._process is None else self._process.pid

    def call(self, tool: str, args: tuple[Any, ...], seconds: float) -> Answer:
        if self._process is None:
            self._begin()
        try:
            self._pipe.send((tool, args))
            if not self._pipe.poll(seconds):
                self.end()
                raise InvalidOperation(
                    f"{tool} could not be interrupted and was ended after {seconds:g} seconds"
                    + _doubt(tool)
                )
            kind, answer = self._pipe.recv()
        except (EOFError, OSError):
            self.end()
            raise InvalidOperation(
                f"the process that ran {tool} has died, maybe for want of memory{_doubt(tool)}"
            ) from None
        if kind == "refused":
            raise InvalidOperation(answer)
        if kind == "failed":
            _LOG.error("%s: %s", tool, answer)
            raise InvalidOperation(f"{tool} failed by an error of LakeVilla: its log has more")
        found: Answer = answer
        return found

    def _begin(self) -> None:
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_work, args=(theirs, self._given), daemon=True)
        process.start()
        theirs.close()
        self._process, self._pipe = process, ours
        ready = False
        with suppress(EOFError, OSError):
            ready = ours.poll(_START_SECONDS) and ours.recv() == "ready"
        if not ready:
            self.end()
            raise InvalidOperation("the process of the tools did not begin: its log has more")

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._pipe.close()
            process.kill()
            process.join()


def _doubt(tool: str) -> str:
    if tool == "execute":
        return ". Nobody knows whether it took effect on the branch: look by changes"
    if tool in ("merge", "rebase"):
        return ". Nobody knows whether it took effect: look by history and list_branches"
    return ""


def _work(pipe: Connection, given: Given) -> None:
    """Answer calls until the process that asks is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tools = given.tools()
    pipe.send("ready")
    while True:
        try:
            tool, args = pipe.recv()
        except EOFError:
            return
        answer: tuple[str, object]
        try:
            answer = ("answered", tools[tool](*args))
        except LakeVillaError as error:
            answer = ("refused", for_agents(error.message))
        except Exception:
            answer = ("failed", traceback.format_exc())
        pipe.send(answer)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(0)

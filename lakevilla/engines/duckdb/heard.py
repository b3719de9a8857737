"""Statements of users, which may run for ever, in a way in which Ctrl-C ends them.

DuckDB 1 looks for signals while it waits for an answer. DuckDB 2 does so only between the tasks of
a query, and a task may be all of it. There the main thread, which alone hears signals, waits in
Python for another that runs the query, and interrupts it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from lakevilla.engines.duckdb import late as duckdb

T = TypeVar("T")


def heard(connection: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
    """What ``work`` returns, or raises; what a signal's handler raises meanwhile ends it.

    ``work`` uses ``connection`` and no other.
    """
    listens = duckdb.__version__.startswith("1.")
    if listens or threading.current_thread() is not threading.main_thread():
        return work()
    returned: list[T] = []
    raised: list[BaseException] = []
    # Not the thread's own end: a wait for that can't be taken up again once a signal has cut it.
    done = threading.Event()
    context = copy_context()  # limits and meters of the statement are the caller's

    def run() -> None:
        try:
            returned.append(context.run(work))
        except BaseException as error:
            raised.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="lakevilla-query", daemon=True).start()
    try:
        done.wait()
    except BaseException:
        connection.interrupt()
        done.wait()  # the connection takes no other call before
        raise
    if raised:
        raise raised[0]
    return returned[0]

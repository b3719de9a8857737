"""Commands for upkeep, which a scheduler calls, or which run until they are stopped."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from queue import Empty
from typing import Annotated

import typer

from lakevilla.cli.command import ERROR, Json, Options, Profile, Root, Verify, command
from lakevilla.cli.connection import open_lake
from lakevilla.cli.output import Output
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.mailbox import Mailbox
from lakevilla.results import Report

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@command
def maintain(
    root: Root,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", "-t", help="This task; repeatable. Default: all tasks."),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Repeat at this interval: 10m, 1h. SIGTERM or Ctrl-C ends it."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Begin nothing more after this time; continue in the next run."
        ),
    ] = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> Report | None:
    """Do the due tasks of the lake's upkeep: recover, keep, checkpoint, optimize, vacuum, gc.

    One line for each task. For cron, Airflow, or, with --every, a service of its own.
    """
    pause = None if every is None else _seconds("--every", every)
    seconds = None if budget is None else _seconds("--budget", budget)
    with open_lake(root, option, profile) as lake, ending() as end:

        def work() -> Report:
            return lake._maintain(task or None, seconds, end.is_set)

        return work() if pause is None else _again(work, end, pause, Output(as_json))


@command
def keep(
    root: Root,
    name: Annotated[str, typer.Argument(help="The tag, or the branch.")],
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> Report:
    """Keep a ref from the clean-up of other clients: copy files that its tables have removed."""
    with open_lake(root, option, profile) as lake:
        return lake.keep(name)


@command
def backup(
    root: Root,
    target: Annotated[
        str, typer.Argument(help="A directory, or a URI in the lake's store, of its own.")
    ],
    verify: Verify = "sizes",
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Copy the lake, as of now, to a directory; files that it has already are not copied again."""
    with open_lake(root, option, profile) as lake:
        made = lake.backup(target, verify=verify)
    refs = f", refs {', '.join(made.refs)}" if made.refs else ""
    Output(as_json).value(
        asdict(made),
        f"backup {made.name} of {made.tables} tables{refs}: {made.copied_files} of {made.files} "
        f"files were copied ({made.copied_bytes:,} bytes)",
    )


@command
def restore_lake(
    root: Root,
    source: Annotated[str, typer.Argument(metavar="BACKUP", help="The directory of the backups.")],
    name: Annotated[
        str | None, typer.Option("--name", help="This backup. Default: the newest one.")
    ] = None,
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Over what is left of a lake there, by new versions."),
    ] = False,
    verify: Verify = "sizes",
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> Report:
    """Make a lake again from a backup: at an empty root, or over what is left of it.

    Where it was interrupted, the same command goes on.
    """
    from lakevilla.api.backup import restore_from

    with open_lake(root, option, profile, new=True) as lake:
        return restore_from(lake._client, source, name, in_place=in_place, verify=verify)


@command
def absorb(
    root: Root,
    table: Annotated[
        list[str] | None,
        typer.Argument(help="These tables, or those like 'sales/*'. Default: all."),
    ] = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Give the commits of other clients their place in the lake's history."""
    with open_lake(root, option, profile) as lake:
        found = lake.absorb(table or None)
    text = f"added: {', '.join(found)}" if found else "nothing to add"
    Output(as_json).value(found, text)


def _again(
    work: Callable[[], Report], end: EndRequest, pause: float, output: Output
) -> Report | None:
    """Do rounds of work until the end is requested; the last round's result is the exit status."""
    while True:
        output.aside(datetime.now(UTC).isoformat(sep=" ", timespec="seconds"))
        report = None
        try:
            report = work()
        except InvalidOperation:
            raise  # every later round would be refused as well
        except LakeVillaError as error:
            output.error(error)
        if not end.is_set():
            if report is not None:
                output.report(report)
            end.wait(pause)
        elif report is None:
            raise typer.Exit(ERROR)
        else:
            return report


class EndRequest:
    """The request to end the process.

    A signal handler may make the request at any time. It must not set a ``threading.Event``, whose
    lock the interrupted thread itself may hold at the end of a wait.
    """

    def __init__(self) -> None:
        self._asked: Mailbox[None] = Mailbox()

    def ask(self) -> None:
        self._asked.put(None)  # safe in a signal handler, by Python's documentation

    def is_set(self) -> bool:
        return not self._asked.empty()

    def wait(self, timeout: float | None = None) -> bool:
        try:
            self._asked.get(timeout=timeout)
        except Empty:
            return False
        self.ask()  # repeat the request for the next caller
        return True


@contextmanager
def ending() -> Iterator[EndRequest]:
    """Request the end at the first SIGTERM or Ctrl-C; the second one ends the process as usual."""
    end = EndRequest()
    if threading.current_thread() is not threading.main_thread():
        yield end
        return
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}

    def asked(number: int, frame: object) -> None:
        end.ask()
        signal.signal(number, before[signal.Signals(number)])

    for one in before:
        signal.signal(one, asked)
    try:
        yield end
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _seconds(name: str, text: str) -> float:
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd]?)", text.strip().lower())
    if found is None or float(found[1]) <= 0:
        raise InvalidOperation(f"{name} {text!r} is not a time: write 30s, 10m, 1h or 1d")
    if not found[2]:
        raise InvalidOperation(
            f"{name} {text!r} has no unit: write {found[1]}s for seconds, {found[1]}m for minutes"
        )
    return float(found[1]) * _UNITS[found[2]]

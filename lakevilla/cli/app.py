"""The entry point, and the oldest commands; the other commands are in files next to this one.

Exit status: 0 success, 1 findings, 2 error.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from lakevilla import __version__
from lakevilla.cli import (  # noqa: F401 (they register commands)
    agents,
    applying,
    benchmarks,
    changes,
    creating,
    log,
    metrics,
    naming,
    reading,
    refs,
    serving,
    upkeep,
)
from lakevilla.cli.command import (
    ERROR,
    FINDINGS,
    Json,
    On,
    Options,
    Profile,
    Root,
    TableName,
    Timestamp,
    Version,
    app,
    command,
    parse_time,
)
from lakevilla.cli.connection import open_lake, session_of, storage_options
from lakevilla.cli.finding import NO_TABLES
from lakevilla.cli.output import Output
from lakevilla.cli.reading import state, time_hint
from lakevilla.cli.shell import command as shell_command  # noqa: F401
from lakevilla.cli.sql import command as sql_command  # noqa: F401 (it registers one)
from lakevilla.errors import InvalidOperation
from lakevilla.results import Report


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(f"lakevilla {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Multi-table transactions over the Delta and Iceberg tables of a lake. No server."""


def main() -> None:
    """Run the ``lakevilla`` script."""
    for stream in (sys.stdout, sys.stderr):
        # Show characters that the terminal's encoding lacks as escapes.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Typer builds the parameters of every registered command, which takes longer for all fifty than
    # most commands run. If the first word names a command, register only that one.
    if named := [one for one in app.registered_commands if [one.name] == sys.argv[1:2]]:
        app.registered_commands = named
    try:
        app()
    except OSError as error:  # an error of the local machine: the output's disk is full
        print(f"the command ended: {error}", file=sys.stderr)
        # Python flushes the rest of the buffer at its end, which would fail again, with another
        # status.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ERROR)
    except Exception:
        # Python's status for an exception would be 1, which means findings here.
        traceback.print_exc()
        sys.exit(ERROR)


@command
def snapshot(
    root: Root,
    version: Version = None,
    timestamp: Timestamp = None,
    on: On = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show the versions of all tables at one time, for use with any other reader."""
    with (
        open_lake(root, option, profile, on=on) as lake,
        lake.snapshot(version, parse_time(timestamp)) as state,
    ):
        rows = [
            {"table": name, "version": table.version, "format": table.format, "uri": table.uri}
            for name, table in sorted(state.versions.items())
        ]
        output = Output(as_json)
        made = state.timestamp
        if as_json:
            output.value({"version": state.version, "timestamp": made, "tables": rows}, "")
        else:
            since = "" if made is None else f", made at {made.isoformat(sep=' ')}"
            output.line(f"global version {state.version}{since}")
            if rows:
                output.rows(["table", "version", "format", "uri"], rows)
            else:
                output.line(NO_TABLES)


@command
def txns(
    root: Root, option: Options = None, profile: Profile = None, as_json: Json = False
) -> None:
    """Show the transactions that are in a queue or were saved, and the ones they wait for."""
    with open_lake(root, option, profile) as lake:
        output = Output(as_json)
        if not lake.exists() and not as_json:
            output.line(f"{lake.root} has no lake yet")
            return
        output.transactions(lake.transactions())


@command
def abort(
    root: Root,
    txn_id: Annotated[str, typer.Argument(help="The transaction's id.")],
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Abort an undecided transaction of any owner."""
    with open_lake(root, option, profile) as lake:
        known = any(info.id == txn_id for info in lake.transactions())
        lake.abort(txn_id)
    warning = "" if known else ": it was in no queue and not saved, so check the id"
    Output(as_json).value(
        {"aborted": txn_id, "known": known},
        f"transaction {txn_id} can't commit any more{warning}",
    )


@command
def guard(
    root: Root,
    table: TableName,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Let only LakeVilla write a table; every client can still read it."""
    with open_lake(root, option, profile) as lake:
        lake.guard(table)
    Output(as_json).value({"guarded": table}, f"guarded {table}: other writers now refuse it")


@command
def unguard(
    root: Root,
    table: TableName,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Let other clients write a table again."""
    with open_lake(root, option, profile) as lake:
        lake.unguard(table)
    Output(as_json).value({"unguarded": table}, f"unguarded {table}: any client may write it")


@command
def optimize(
    root: Root,
    table: TableName,
    where: Annotated[
        str | None, typer.Option(help="Only partitions for which this predicate is true.")
    ] = None,
    z_order: Annotated[
        list[str] | None,
        typer.Option(
            help="Rewrite all files, ordered by this column, or by several along a Z curve."
        ),
    ] = None,
    target_size: Annotated[
        int | None, typer.Option(metavar="BYTES", help="The approximate size of new files.")
    ] = None,
    features: Annotated[
        str,
        typer.Option(
            metavar="FEATURES",
            help="With CT it waits for its turn in the table's queue; with R,CT,I it is saved too.",
        ),
    ] = "R,I",
    on: On = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Combine a table's small files; gives way to every other transaction."""
    from lakevilla.api.session.session import features_of

    chosen = features_of(features)
    with open_lake(root, option, profile, on=on) as lake:
        done = lake.table(table).optimize(
            where,
            target_file_size_bytes=target_size,
            z_order_by=z_order or (),
            features=chosen,
        )
    message = (
        f"{done.files_removed} files of {table} became {done.files_added}"
        if done.files_removed
        else f"{table} has no files to compact"
    )
    if done.files_given_up:
        message += (
            f"; {done.files_given_up} were skipped, as other transactions changed them meanwhile"
        )
    Output(as_json).value(done, message)


@command
def vacuum(
    root: Root,
    table: TableName,
    retention_hours: Annotated[
        float | None, typer.Option(help="Default: the table's own, or 168 (Iceberg: 120).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run/--no-dry-run", help="Show the files, or delete them.")
    ] = True,
    enforce: Annotated[
        bool,
        typer.Option(
            "--enforce/--no-enforce", help="Refuse a retention below the table's, or accept it."
        ),
    ] = True,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Delete files of a table that no version within the retention needs."""
    with open_lake(root, option, profile) as lake:
        paths = lake.table(table).vacuum(
            retention_hours, dry_run, enforce_retention_duration=enforce
        )
    output = Output(as_json)
    if as_json:
        output.value({"dry_run": dry_run, "files": paths}, "")
        return
    for path in paths:
        output.line(path)
    verb = "would be" if dry_run else "were"
    output.line(f"{len(paths)} files of {table} {verb} deleted")


@command
def doctor(
    root: Root,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Give a copied or moved lake a new identity.")
    ] = False,
    files: Annotated[
        bool,
        typer.Option("--files", help="Also check every live data file: two requests each."),
    ] = False,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> Report:
    """Report pending work, leftovers and errors; change nothing, except with --adopt."""
    with open_lake(root, option, profile) as lake:
        return lake.doctor(adopt=adopt, files=files)


@command
def verify(
    root: Root,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", help="Only this table, or those like 'sales/*'; repeatable."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", help="Only this state: a global version, a time, or a ref."),
    ] = None,
    sample: Annotated[
        float,
        typer.Option(
            "--sample", help="Check this share of the data files, different ones each day."
        ),
    ] = 1.0,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> Report:
    """Compare objects and data files with the hashes stored when they were written.

    Exits with 1 if anything differs from what was written.
    """
    at_state = None if at is None else state(at, "--at")
    with open_lake(root, option, profile) as lake, time_hint(at):
        return lake.verify(table or None, at=at_state, sample=sample)


@command
def recover(
    root: Root,
    rebuild_head: Annotated[
        bool,
        typer.Option("--rebuild-head", help="Rebuild a lost or damaged HEAD.json."),
    ] = False,
    confirm_head: Annotated[
        bool,
        typer.Option(
            "--confirm-head",
            help="Let gc and vacuum delete again after --rebuild-head or --reset-head, when you "
            "have read the report, or where gc can't decide whether HEAD is right.",
        ),
    ] = False,
    reset_head: Annotated[
        int | None,
        typer.Option(
            "--reset-head",
            metavar="N",
            help=(
                "Continue from HEAD number N (its replacement, in messages): the present one, or "
                "one that is kept; for a number that is not kept the error lists those that are."
            ),
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="With --rebuild-head: also where HEAD.json can be read, because it is too old.",
        ),
    ] = False,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> Report:
    """Finish the decided work of dead clients, and release their places in the queues.

    Waits for a lease, if there are places whose owners may be dead.
    """
    with open_lake(root, option, profile) as lake:
        return lake.recover(
            rebuild_head=rebuild_head,
            confirm_head=confirm_head,
            reset_head=reset_head,
            force=force,
        )


@command
def gc(
    root: Root,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted.")] = False,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> Report:
    """Delete the files of aborted transactions, and records past their retention."""
    with open_lake(root, option, profile) as lake:
        return lake.gc(dry_run=dry_run)


@command
def demo(
    store: Annotated[
        str | None,
        typer.Option(help="Run on this store (s3://bucket/prefix) instead of a directory."),
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="Keep the lake in this new directory.")] = None,
    scale: Annotated[float, typer.Option(help="TPC-H scale factor.")] = 0.1,
    batches: Annotated[int, typer.Option(help="Order batches, one transaction each.")] = 200,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Ingest orders, transfer money, kill a client in mid-commit, recover, and check it all."""
    try:
        from lakevilla.api.connecting import frozen
        from lakevilla.cli.demo import run as tour
    except ImportError as error:
        raise InvalidOperation(
            f"the demo needs a package that is not installed ({error.name or error}): install "
            "LakeVilla with its extra bench, `pip install 'lakevilla[bench]'`"
        ) from error
    if not tour.run(
        store=store,
        keep=keep,
        scale=scale,
        batches=batches,
        storage_options={**storage_options(option), **frozen(session_of(profile))},
        output=Output(as_json),
    ):
        raise typer.Exit(FINDINGS)

"""The commands. Exit status: 0 well, 1 findings, 2 error."""

from __future__ import annotations

import functools
import sys
import traceback
import warnings
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, ParamSpec

import pyarrow as pa
import typer
from rich.markup import escape

from lakevilla import __version__
from lakevilla.api.lake import Lake
from lakevilla.cli.demo import run as demo_command
from lakevilla.cli.output import Output
from lakevilla.connecting import connect
from lakevilla.errors import InvalidOperation, LakeVillaError, LakeVillaWarning
from lakevilla.lake.context import Event
from lakevilla.results import Report
from lakevilla.store.location import root_location

__all__ = ["app", "main"]

FINDINGS = 1
ERROR = 2

_NO_TABLES = (
    "no tables yet: one under the root enters at its first commit, "
    "or by `lakevilla register ROOT NAME`"
)

P = ParamSpec("P")

app = typer.Typer(
    name="lakevilla",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Root = Annotated[
    str, typer.Argument(help="The lake: s3://bucket/prefix, gs://..., abfss://... or a directory.")
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="KEY=VALUE",
        help="A storage option, as deltalake has them (AWS_* and the like are read too), or "
        "catalog.NAME.PROPERTY=VALUE for a catalog, as pyiceberg has them.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]
Version = Annotated[int | None, typer.Option("--version", min=0, help="As of this global version.")]
Timestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        help="As of the newest global version at this time: 2026-01-31T12:00:00+01:00, or ...Z.",
    ),
]


def _print_version(asked: bool) -> None:
    if asked:
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


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOperation(
            f"--timestamp {text!r} is no time: write it as 2026-01-31T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise InvalidOperation(
            f"--timestamp {text!r} has no time zone: write {moment.isoformat()}Z for UTC, or the "
            f"offset, as in {moment.isoformat()}+01:00"
        )
    return moment


def main() -> None:
    """Entry point of the ``lakevilla`` script."""
    try:
        app()
    except Exception:
        # Python's own status for an exception is 1, which means findings here.
        traceback.print_exc()
        sys.exit(ERROR)


def command(function: Callable[P, Report | None]) -> Callable[P, None]:
    """Register a command; it returns a report, raises our errors, or prints what it has."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        output = Output(bool(kwargs.get("as_json")))
        try:
            report = function(*args, **kwargs)
        except LakeVillaError as error:
            output.error(error)
            raise typer.Exit(ERROR) from None
        if report is not None:
            output.report(report)
            if not report.ok:
                raise typer.Exit(FINDINGS)

    # Typer calls a command by the names of its parameters.
    app.command(name=function.__name__.rstrip("_"))(run)
    return run


@command
def tables(root: Root, option: Options = None, as_json: Json = False) -> None:
    """Show the lake's tables. Exits with 1 if one can't be opened, and says which."""
    left_out: list[Event] = []
    with _open(root, option, left_out) as lake:
        rows = [
            {
                "name": table.name,
                "format": table.format,
                "version": table.version,
                "guarded": table.guarded,
                "uri": table.uri,
            }
            for table in lake.tables()
        ]
    output = Output(as_json)
    if not (rows or left_out or as_json):
        output.console.print(_NO_TABLES, soft_wrap=True)
        return
    output.rows(["name", "format", "version", "guarded", "uri"], rows)
    if left_out:
        raise typer.Exit(FINDINGS)


@command
def register(
    root: Root,
    name: Annotated[str, typer.Argument(help="The name under which the lake knows the table.")],
    uri: Annotated[
        str | None, typer.Argument(help="Where the table lives; by default NAME under the root.")
    ] = None,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Let a table take part in the lake's transactions."""
    with _open(root, option, new=True) as lake:
        lake.register(name, uri)
        uri = lake.table(name).uri
    Output(as_json).value({"name": name, "uri": uri}, f"registered {name}: {uri}")


@command
def sql(
    root: Root,
    query: Annotated[str, typer.Argument(help='The statement, or "-" to read it from stdin.')],
    write: Annotated[
        bool, typer.Option("--write", help="Allow INSERT, UPDATE, DELETE and MERGE, and commit.")
    ] = False,
    version: Version = None,
    timestamp: Timestamp = None,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Run one statement: a SELECT over one consistent state of all tables, or a write."""
    text = sys.stdin.read() if query == "-" else query
    output = Output(as_json)
    if write and (version is not None or timestamp is not None):
        raise InvalidOperation("the past can't be written: leave out --write, or the version")
    with _open(root, option, new=True) as lake:
        if not write:
            with lake.snapshot(version, _moment(timestamp)) as state:
                output.frame(state.sql(text))
            return
        with lake.transaction() as txn:
            result = txn.sql(text)
        if isinstance(result, pa.Table):
            output.frame(result)
            return
        counts = {
            name: getattr(result, name)
            for name in ("rows_matched", "rows_inserted", "rows_updated", "rows_deleted")
        }
        version = None if txn.result is None else txn.result.global_version
        if as_json:
            output.rows([], [{"id": txn.id, "global_version": version, **counts}])
            return
        told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
        output.console.print(
            f"committed {txn.id} as global version {version}: {told}", soft_wrap=True
        )


@command
def log(
    root: Root,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="So many, the newest.")
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--table", "-t", help="The entries of one table's own log instead."),
    ] = None,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Show the lake's commits, newest first, or one table's log entries."""
    output = Output(as_json)
    with _open(root, option) as lake:
        if table is None:
            output.history(lake.history(limit))
        else:
            output.table_history(lake.table(table).history(limit))


@command
def snapshot(
    root: Root,
    version: Version = None,
    timestamp: Timestamp = None,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Show which version of each table fits together, for use with any other reader."""
    with _open(root, option) as lake, lake.snapshot(version, _moment(timestamp)) as state:
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
            output.console.print(f"global version {state.version}{since}", soft_wrap=True)
            if rows:
                output.rows(["table", "version", "format", "uri"], rows)
            else:
                output.console.print(_NO_TABLES, soft_wrap=True)


@command
def txns(root: Root, option: Options = None, as_json: Json = False) -> None:
    """Show the transactions that are in a queue or were saved, and whom they wait for."""
    with _open(root, option) as lake:
        output = Output(as_json)
        if not lake.exists() and not as_json:
            output.console.print(escape(f"{lake.root} has no lake yet"), soft_wrap=True)
            return
        output.transactions(lake.transactions())


@command
def abort(
    root: Root,
    txn_id: Annotated[str, typer.Argument(help="The transaction's id.")],
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Abort a transaction that has not been decided, whoever owns it."""
    with _open(root, option) as lake:
        known = any(info.id == txn_id for info in lake.transactions())
        lake.abort(txn_id)
    told = "" if known else ": it was in no queue and not saved, so check the id"
    Output(as_json).value(
        {"aborted": txn_id, "known": known},
        f"transaction {txn_id} can't commit any more{told}",
    )


@command
def guard(
    root: Root,
    table: Annotated[str, typer.Argument(help="The table.")],
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Let only LakeVilla write a table; everyone can still read it."""
    with _open(root, option) as lake:
        lake.guard(table)
    Output(as_json).value({"guarded": table}, f"guarded {table}: other writers now refuse it")


@command
def unguard(
    root: Root,
    table: Annotated[str, typer.Argument(help="The table.")],
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Let other clients write a table again."""
    with _open(root, option) as lake:
        lake.unguard(table)
    Output(as_json).value({"unguarded": table}, f"unguarded {table}: anyone may write it")


@command
def optimize(
    root: Root,
    table: Annotated[str, typer.Argument(help="The table.")],
    where: Annotated[
        str | None, typer.Option(help="Only partitions for which this predicate is true.")
    ] = None,
    z_order: Annotated[
        list[str] | None,
        typer.Option(help="Rewrite all files, ordered by this column; several: a Z curve."),
    ] = None,
    target_size: Annotated[
        int | None, typer.Option(metavar="BYTES", help="About how large files are to be.")
    ] = None,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Put a table's small files together; gives way to every other transaction."""
    with _open(root, option) as lake:
        done = lake.table(table).optimize(
            where, target_file_size_bytes=target_size, z_order_by=z_order or ()
        )
    told = (
        f"{done.files_removed} files of {table} became {done.files_added}"
        if done.files_removed
        else f"{table} has no files to put together"
    )
    if done.files_given_up:
        told += f"; {done.files_given_up} were left as others changed them meanwhile"
    Output(as_json).value(done, told)


@command
def vacuum(
    root: Root,
    table: Annotated[str, typer.Argument(help="The table.")],
    retention_hours: Annotated[
        float | None, typer.Option(help="By default what the table says, or 168 (Iceberg: 120).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run/--no-dry-run", help="Say what would go; delete it.")
    ] = True,
    enforce: Annotated[
        bool,
        typer.Option(
            "--enforce/--no-enforce", help="Refuse a retention below the table's, or take it."
        ),
    ] = True,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Delete files of a table that no version within the retention needs."""
    with _open(root, option) as lake:
        gone = lake.table(table).vacuum(
            retention_hours, dry_run, enforce_retention_duration=enforce
        )
    output = Output(as_json)
    if as_json:
        output.value({"dry_run": dry_run, "files": gone}, "")
        return
    for path in gone:
        output.console.print(path, soft_wrap=True, markup=False, highlight=False)
    verb = "would be" if dry_run else "were"
    output.console.print(f"{len(gone)} files of {table} {verb} deleted", soft_wrap=True)


@command
def doctor(
    root: Root,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Give a copied or moved lake a new identity.")
    ] = False,
    files: Annotated[
        bool,
        typer.Option("--files", help="Look at every live data file, too: two requests each."),
    ] = False,
    option: Options = None,
    as_json: Json = False,
) -> Report:
    """Look for what is pending, left over or wrong; change nothing, but for --adopt."""
    with _open(root, option) as lake:
        return lake.doctor(adopt=adopt, files=files)


@command
def recover(
    root: Root,
    rebuild_head: Annotated[
        bool,
        typer.Option("--rebuild-head", help="Make a lost or damaged HEAD.json anew."),
    ] = False,
    confirm_head: Annotated[
        bool,
        typer.Option("--confirm-head", help="Let gc and vacuum delete again after a rebuild."),
    ] = False,
    option: Options = None,
    as_json: Json = False,
) -> Report:
    """Finish what dead clients have decided, and give their places in the queues up.

    Waits for a lease, if there are places whose owners may be dead.
    """
    with _open(root, option) as lake:
        return lake.recover(rebuild_head=rebuild_head, confirm_head=confirm_head)


@command
def gc(
    root: Root,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go, and delete nothing.")
    ] = False,
    option: Options = None,
    as_json: Json = False,
) -> Report:
    """Delete the files of aborted transactions, and records past their retention."""
    with _open(root, option) as lake:
        return lake.gc(dry_run=dry_run)


@command
def demo(
    store: Annotated[
        str | None,
        typer.Option(help="Run on this store (s3://bucket/prefix) instead of a directory."),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the lake in this new directory and look around.")
    ] = None,
    scale: Annotated[float, typer.Option(help="TPC-H scale factor.")] = 0.1,
    batches: Annotated[int, typer.Option(help="Order batches, one transaction each.")] = 200,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Ingest orders, transfer money, kill a client in mid-commit, recover, and check it all."""
    if not demo_command.run(
        store=store,
        keep=keep,
        scale=scale,
        batches=batches,
        storage_options=storage_options(option),
        output=Output(as_json),
    ):
        raise typer.Exit(FINDINGS)


_CATALOG = "catalog."


def storage_options(pairs: list[str] | None) -> dict[str, str]:
    """``KEY=VALUE`` pairs as a dict."""
    options = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not key or not equals:
            # The value may be a secret: it is not repeated.
            raise InvalidOperation(f"--option {key!r} has no value: write KEY=VALUE")
        options[key] = value
    return options


def _open(
    root: str,
    pairs: list[str] | None,
    left_out: list[Event] | None = None,
    *,
    new: bool = False,
) -> Lake:
    """The lake of a command; only one that is ``new`` may have no directory yet."""
    options = storage_options(pairs)
    catalogs: dict[str, dict[str, str]] = {}
    for key in [key for key in options if key.startswith(_CATALOG)]:
        name, _, wanted = key.removeprefix(_CATALOG).partition(".")
        catalogs.setdefault(name, {})[wanted] = options.pop(key)

    def tell(event: Event) -> None:
        """What a command leaves out is said on stderr, so that nobody takes the rest for all."""
        if event.kind == "left_out":
            print(event.message, file=sys.stderr)
            if left_out is not None:
                left_out.append(event)

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always", LakeVillaWarning)
        lake = connect(root, storage_options=options or None, on_event=tell, catalogs=catalogs)
    place = root_location(lake.root)
    if not new and place.scheme == "file" and not Path(f"/{place.path}").is_dir():
        raise InvalidOperation(f"there is no directory /{place.path}: check the root")
    for warning in noted:
        print(warning.message, file=sys.stderr)
    warnings.simplefilter("ignore", LakeVillaWarning)  # it is said by ``tell``
    return lake

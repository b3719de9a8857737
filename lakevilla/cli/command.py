"""Declare a command, and its common options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Literal, ParamSpec

import typer
from typer.core import TyperGroup

from lakevilla.cli.completion import complete_ref, complete_root, complete_table
from lakevilla.cli.output import Output
from lakevilla.cli.purposes import aliases_of, place_of, purpose_of
from lakevilla.cli.root import ROOT_VARIABLE, RootCommand
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.results import Report

# Exit status: 0 success, 1 findings, 2 error. Modules that load slowly are imported by the commands
# that need them, so that help appears at once.


FINDINGS = 1
ERROR = 2
#: The exit status after Ctrl-C, as in shells.
INTERRUPTED = 130

P = ParamSpec("P")

#: The ref that every lake has. It is defined again here, because ``global_log.refs`` loads slowly.
MAIN = "main"
#: Command names of other tools, and what to use here instead.
_ELSEWHERE = {
    "branches": "`lakevilla refs` lists the branches and tags",
    "checkout": "--on NAME is taken by each command about tables",
    "delete-ref": "`lakevilla tag ROOT NAME --delete` deletes a tag, `lakevilla branch` a branch",
    "tags": "`lakevilla refs` lists the branches and tags",
    "untag": "`lakevilla tag ROOT NAME --delete` deletes a tag",
    "alter": "`lakevilla sql ROOT --write 'ALTER TABLE ...'` changes columns",
    "discover": "`lakevilla tables` shows what is not in the lake yet, too",
    "list": "`lakevilla tables` lists the tables",
    "read": "`lakevilla sql` runs a query",
}


class _ByPurpose(TyperGroup):
    """A group that lists its commands by their purpose, in whatever order files register them."""

    def list_commands(self, ctx: object) -> list[str]:
        return sorted(self.commands, key=place_of)


app = typer.Typer(
    name="lakevilla",
    cls=_ByPurpose,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Root = Annotated[
    str,
    typer.Argument(
        help="The lake: s3://bucket/prefix, gs://..., abfss://..., a directory, or a name that "
        f"`lakevilla config` lists. May be left out where {ROOT_VARIABLE} has it.",
        autocompletion=complete_root,
    ),
]
TableName = Annotated[str, typer.Argument(help="The table.", autocompletion=complete_table)]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="KEY=VALUE",
        help="A storage option as for deltalake (also read from the environment), or "
        "catalog.NAME.PROPERTY=VALUE for a catalog, as pyiceberg has them; "
        "stores=URI,URI for other stores that tables lie in; files_outside=URI,URI for directories "
        "elsewhere in which tables name files; sql_uris=true to let SQL name tables anywhere; "
        "format_limit=6 to store nothing that older clients can't read.",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", help="Take S3 credentials from this boto3 profile."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="NAME",
        help="The lake as this ref has it: `lakevilla refs`.",
        autocompletion=complete_ref,
    ),
]
_RefusedOn = Annotated[str | None, typer.Option("--on", hidden=True)]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        "-p",
        metavar="NAME=VALUE",
        help="The value of :NAME in the statements: JSON, or unchanged text; repeatable.",
    ),
]
Version = Annotated[int | None, typer.Option("--version", min=0, help="As of this global version.")]
Timestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        help="As of the newest global version at this time: 2026-01-31T12:00:00+01:00, or ...Z.",
    ),
]
Verify = Annotated[
    Literal["sizes", "hashes"],
    typer.Option(
        "--verify", help="With backups: compare files by size, or read them and compare hashes."
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", "-n", min=0, help="Show this many rows, and count the rest."),
]
MaxRows = Annotated[
    int | None,
    typer.Option("--max-rows", min=0, help="Stop a query that finds more rows."),
]
MaxBytes = Annotated[
    int | None,
    typer.Option("--max-bytes", min=0, help="Stop a query whose rows take more memory."),
]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", help="Stop a statement that takes longer."),
]


def limits_of(max_rows: int | None, max_bytes: int | None, timeout: float | None) -> dict[str, Any]:
    """Return the three limits as arguments of ``Lake.session``."""
    return {"max_rows": max_rows, "max_bytes": max_bytes, "timeout_seconds": timeout}


def command(function: Callable[P, Report | None], *, hidden: bool = False) -> Callable[P, None]:
    """Register a function as a command, which prints its result, returns a report, or raises
    errors.

    If a command for a lake does not take ``--on``, its error gives the reason, and not "no such
    option".
    """
    signature = inspect.signature(function, eval_str=True)
    takes_ref = "on" in signature.parameters

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        output = Output(bool(kwargs.get("as_json")))
        try:
            if not takes_ref:
                _refuse_ref(function.__name__, kwargs.pop("on", None))
            report = function(*args, **kwargs)
        except LakeVillaError as error:
            output.error(error)
            raise typer.Exit(ERROR) from None
        if report is not None:
            output.report(report)
            if not report.ok:
                raise typer.Exit(FINDINGS)

    if "root" in signature.parameters and not takes_ref:
        _add_option(run, signature, "on", _RefusedOn)
    # Typer calls a function by parameter names.
    extra = {"allow_extra_args": hidden, "ignore_unknown_options": hidden}
    called = function.__name__.rstrip("_").replace("_", "-")
    aliases = aliases_of(called)
    app.command(
        called,
        cls=RootCommand,
        hidden=hidden,
        context_settings=extra,
        rich_help_panel=None if hidden else purpose_of(called),
        epilog=f"Also called {' and '.join(aliases)}." if aliases else None,
    )(run)
    for alias in aliases:
        app.command(alias, cls=RootCommand, hidden=True)(run)
    return run


def _refuse_ref(name: str, ref: object) -> None:
    if ref is not None and ref != MAIN:
        raise InvalidOperation(
            f"{name} takes no --on: it is about the whole lake with all its refs, so leave it out"
        )


def _add_option(
    run: Callable[..., None], signature: inspect.Signature, name: str, kind: object
) -> None:
    """Give a command an option that its function does not have."""
    option = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
    parameters = [*signature.parameters.values(), option]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {**run.__annotations__, name: kind}


def _tell_where(name: str, where: str) -> None:
    """Register another tool's command name, hidden, with an error that names the command to use."""

    def tell() -> None:
        raise InvalidOperation(f"there is no command {name}: {where}")

    tell.__name__ = name
    command(tell, hidden=True)


def parse_time(text: str | None, name: str = "--timestamp") -> datetime | None:
    """Parse a time in the form that ``--timestamp`` takes."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOperation(
            f"{name} {text!r} is not a time: write it as 2026-01-31T12:00:00Z"
        ) from None
    if found.tzinfo is None:
        raise InvalidOperation(
            f"{name} {text!r} has no time zone: write {found.isoformat()}Z for UTC, or the "
            f"offset, as in {found.isoformat()}+01:00"
        )
    return found


def pair(text: str, what: str, mark: str) -> tuple[str, str]:
    """Split an argument such as KEY=VALUE into its two sides."""
    name, found, value = text.partition(mark)
    if not (name and found and (value or mark == "=")):
        wanted = "NAME:TYPE, such as id:bigint" if mark == ":" else "KEY=VALUE"
        raise InvalidOperation(f"{what} {text!r} is not understood: write {wanted}")
    return name, value


for _name, _where in _ELSEWHERE.items():
    _tell_where(_name, _where)


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Return a block that imports what an extra brings, ``what``; it names the extra if it lacks.

    Raises
    ------
    InvalidOperation
        A package of the extra is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "lakevilla":
            raise
        raise InvalidOperation(
            f"{package} is not installed: `pip install 'lakevilla[{name}]'` brings what {what}"
        ) from None

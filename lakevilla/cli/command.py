"""Declare a command, its common options, and the lake that it connects to."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer
from typer.core import TyperGroup

import lakevilla as lv
from lakevilla.cli.output import Output
from lakevilla.display import shown_text
from lakevilla.errors import InvalidOperation, LakeVillaError, LakeVillaWarning
from lakevilla.results import Report
from lakevilla.store.location import root_location

# -------------------- command
#
# The parts that all commands share: options, registration and exit status.
#
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
    "history": "`lakevilla log` shows the commits",
    "list": "`lakevilla tables` lists the tables",
    "ls": "`lakevilla tables` lists the tables",
    "read": "`lakevilla sql` runs a query",
}


class _Sorted(TyperGroup):
    """A group that lists its commands by name, in whatever order files register them."""

    def list_commands(self, ctx: object) -> list[str]:
        return sorted(self.commands)


app = typer.Typer(
    name="lakevilla",
    cls=_Sorted,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Root = Annotated[
    str, typer.Argument(help="The lake: s3://bucket/prefix, gs://..., abfss://... or a directory.")
]
TableName = Annotated[str, typer.Argument(help="The table.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="KEY=VALUE",
        help="A storage option as for deltalake (also read from the environment), or "
        "catalog.NAME.PROPERTY=VALUE for a catalog, as pyiceberg has them; "
        "stores=URI,URI for other stores that tables lie in; files_outside=URI,URI for directories "
        "elsewhere in which tables name files; sql_uris=true to let SQL name tables anywhere.",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", help="Take S3 credentials from this boto3 profile."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]
On = Annotated[
    str | None,
    typer.Option("--on", metavar="NAME", help="The lake as this ref has it: `lakevilla refs`."),
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
    app.command(called, hidden=hidden, context_settings=extra)(run)
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


# -------------------- connection
#
# The lake of a command: its root, and the options of its store from ``--option``.


if TYPE_CHECKING:
    import boto3

_CATALOG = "catalog."
#: The options that set ``Settings.stores`` and other arguments of ``connect``.
_STORES = "stores"
_OUTSIDE = "files_outside"
_SQL_URIS = "sql_uris"


def storage_options(pairs: list[str] | None) -> dict[str, str]:
    """Parse ``KEY=VALUE`` pairs into a dict."""
    options = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not key or not equals:
            # Don't repeat the value in the message: it may be a secret.
            raise InvalidOperation(f"--option {key!r} has no value: write KEY=VALUE")
        options[key] = value
    return options


def session_of(profile: str | None) -> boto3.Session | None:
    """Return a boto3 session for a named profile."""
    if profile is None:
        return None
    try:
        import boto3
        from botocore.exceptions import ProfileNotFound  # type: ignore[import-untyped]
    except ImportError:
        raise InvalidOperation(
            "--profile needs boto3, which is not installed here: `pip install boto3`, or pass the "
            "keys as --option AWS_ACCESS_KEY_ID=... and --option AWS_SECRET_ACCESS_KEY=..."
        ) from None
    try:
        return boto3.Session(profile_name=profile)
    except ProfileNotFound:
        known = ", ".join(boto3.Session().available_profiles) or "none"
        raise InvalidOperation(
            f"--profile {profile!r} is in neither ~/.aws/config nor ~/.aws/credentials (there are: "
            f"{known}): make it with `aws configure --profile NAME`"
        ) from None


@contextmanager
def open_lake(
    root: str,
    pairs: list[str] | None,
    profile: str | None = None,
    left_out: list[str] | None = None,
    *,
    new: bool = False,
    on: str | None = None,
) -> Iterator[lv.Lake[Any]]:
    """Open a command's lake, at the ref named ``on``, and close it when the block ends.

    Unless the lake is ``new``, its directory must exist.

    Messages on parts that the result omits are added to ``left_out``.
    """
    options = storage_options(pairs)
    stores = tuple(_listed(options.pop(_STORES, "")))
    catalogs: dict[str, dict[str, str]] = {}
    for key in [key for key in options if key.startswith(_CATALOG)]:
        name, _, wanted = key.removeprefix(_CATALOG).partition(".")
        if not (name and wanted):
            raise InvalidOperation(
                f"--option {key!r} is not understood: write catalog.NAME.PROPERTY=VALUE"
            )
        catalogs.setdefault(name, {})[wanted] = options.pop(key)
    outside = options.pop(_OUTSIDE, "")
    sql_uris = _flag(_SQL_URIS, options.pop(_SQL_URIS, "false"))

    def tell(event: lv.Event) -> None:
        """Print on stderr what the result omits, so that users don't take it for complete."""
        if event.kind == "left_out":
            print(shown_text(event.message), file=sys.stderr)
            if left_out is not None:
                left_out.append(event.message)

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always", LakeVillaWarning)
        lake = lv.connect(
            root,
            storage_options=options or None,
            boto3_session=session_of(profile),
            on_event=tell,
            progress=True,
            catalogs=catalogs,
            files_outside=_listed(outside),
            settings=lv.Settings(stores=stores, sql_uris=sql_uris),
        )
    _check_directory(lake.root, new)
    for warning in noted:
        print(shown_text(str(warning.message)), file=sys.stderr)
    warnings.simplefilter("ignore", LakeVillaWarning)  # ``tell`` prints these warnings
    with lake:
        yield lake if on is None else lake.on(on)


def _listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidOperation(f"--option {name} is true or false, not {text!r}")
    return text.lower() == "true"


def _check_directory(root: str, new: bool) -> None:
    """Refuse a local root that is not a directory."""
    place = root_location(root)
    path = Path(f"/{place.path}")
    if place.scheme != "file" or path.is_dir():
        return
    if not new:
        raise InvalidOperation(
            f"there is no directory {path}: check the root; `mkdir` makes one for a new lake, and "
            "`lakevilla create` makes it with its first table"
        )

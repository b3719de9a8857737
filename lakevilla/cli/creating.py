"""Commands that create, rename and drop tables."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer

import lakevilla as lv
from lakevilla.cli.command import Json, On, Options, Profile, Root, TableName, command, pair
from lakevilla.cli.connection import open_lake
from lakevilla.cli.output import Output
from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    UnsupportedFormat,
    UnsupportedTableFeature,
)

#: The file formats that pyarrow reads, by the suffix of the file's name.
_FILE_FORMATS = {".parquet": "parquet", ".csv": "csv", ".arrow": "ipc", ".orc": "orc"}


@command
def create(
    root: Root,
    table: TableName,
    columns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COLUMN:TYPE]...",
            help="id:bigint 'price:decimal(18,2)' ..., also of columns of a CSV file.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--from", help="Take columns and rows from a Parquet, CSV or Arrow file."),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="delta or iceberg.")
    ] = "delta",
    partition_by: Annotated[
        list[str] | None, typer.Option(help="A partition column; repeatable, in this order.")
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="KEY=VALUE", help="A table property.")
    ] = None,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Leave an existing table unchanged.")
    ] = False,
    on: On = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Create a table of the columns given, or of a file with its rows."""
    if not columns and file is None:
        raise InvalidOperation(
            f"create {table}: name columns with their types, such as id:bigint, or pass --from FILE"
        )
    given = dict(pair(text, "--property", "=") for text in properties or ())
    types = _columns(columns or [])
    data: Any = types if file is None else _rows_of(file, types)
    with open_lake(root, option, profile, new=True, on=on) as lake:
        made = lake.create_table(
            table,
            data,
            format=format_,  # type: ignore[arg-type]  # refused there if it is none
            partition_by=partition_by or (),
            properties=given,
            exist_ok=exist_ok,
        )
    value = {"name": made.name, "uri": made.uri, "format": made.format, "version": made.version}
    Output(as_json).value(value, f"table {made.name} is at {made.uri}")


@command
def drop(
    root: Root,
    table: TableName,
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Delete its files too, for good.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    on: On = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Drop a table from the lake; its files stay, unless --delete-data says otherwise."""
    with open_lake(root, option, profile, on=on) as lake:
        if delete_data and not yes:
            if as_json:
                raise InvalidOperation(
                    f"drop {table}: --delete-data deletes its files for good: pass --yes as well"
                )
            _confirm(lake, table)
        lake.drop_table(table, delete_data=delete_data)
    rest = "and its files are deleted" if delete_data else "and its files stay where they are"
    value = {"dropped": table, "data_deleted": delete_data}
    Output(as_json).value(value, f"table {table} is out of the lake, {rest}")


@command
def rename(
    root: Root,
    table: TableName,
    new: Annotated[str, typer.Argument(help="The name under which the lake knows it from now on.")],
    on: On = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Rename a table; its files stay where they are."""
    with open_lake(root, option, profile, on=on) as lake:
        lake.rename_table(table, new)
        uri = lake.table(new).uri
    value = {"name": new, "was": table, "uri": uri}
    Output(as_json).value(value, f"table {table} is called {new} now: {uri}")


def _confirm(lake: lv.Lake[Any], table: str) -> None:
    with contextlib.suppress(CorruptObject, UnsupportedFormat, UnsupportedTableFeature):
        lake.table(table)  # raise an error before the question if the table does not exist
    question = f"Delete all files of {table} in {lake.root} for good?"
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:  # there is no terminal on which to answer
        agreed = False
    if not agreed:
        raise InvalidOperation(
            f"drop {table}: not confirmed, nothing is deleted: answer y or pass --yes"
        )


def _columns(texts: list[str]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for text in texts:
        name, type_ = pair(text, "column", ":")
        if name in columns:
            raise InvalidOperation(f"column {name!r} is given twice: keep one")
        columns[name] = type_
    return columns


def _rows_of(file: Path, types: dict[str, str]) -> Any:
    """Return a reader of a file's rows, which are read while they are written.

    ``types`` are those of a CSV file's columns; the types of its other columns follow from their
    first values.
    """
    import pyarrow as pa
    from pyarrow import csv, dataset

    from lakevilla.sql.expressions.typenames import columns_of

    kind = _FILE_FORMATS.get(file.suffix.lower())
    if kind is None:
        raise InvalidOperation(
            f"--from {file}: the name must end in {', '.join(_FILE_FORMATS)}, which say its format"
        )
    if not file.is_file():
        raise InvalidOperation(f"--from {file}: there is no such file")
    if types and kind != "csv":
        raise InvalidOperation(
            f"--from {file}: a {kind} file has types of its own: leave out {', '.join(types)}"
        )
    read_as: Any = kind
    if kind == "csv":
        # An empty field is NULL, and "" is an empty text, as in the CSV that `sql` prints.
        options = csv.ConvertOptions(
            column_types=columns_of(types) if types else None,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        read_as = dataset.CsvFileFormat(convert_options=options)
    try:
        rows = dataset.dataset(file, format=read_as)
        _refuse_unknown(file, types, rows.schema.names)
        return rows.scanner().to_reader()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidOperation(f"--from {file} is not a {kind} file: {reason}") from None


def _refuse_unknown(file: Path, types: dict[str, str], names: list[str]) -> None:
    unknown = [name for name in types if name not in names]
    if unknown:
        raise InvalidOperation(
            f"--from {file} has no column {unknown[0]!r}: it has {', '.join(names)}"
        )

"""A load package of dlt, as what it asks of the tables of one dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from dlt.common.configuration.container import Container
from dlt.common.configuration.exceptions import ContextDefaultCannotBeCreated
from dlt.common.destination.client import SqlModel
from dlt.common.schema import Schema
from dlt.common.schema.typing import TTableSchema
from dlt.common.schema.utils import get_root_table
from dlt.common.storages.file_storage import FileStorage
from dlt.common.storages.load_package import (
    LoadPackageStateInjectableContext,
    PackageStorage,
    ParsedLoadJobFileName,
    TLoadPackageState,
)
from dlt.load.utils import get_completed_table_chain

from lakevilla.errors import InvalidOperation

__all__ = ["LoadPackage", "current_package", "is_in_package"]

#: A state of a job, and its file's name in parts.
_Job = tuple[str, ParsedLoadJobFileName]


@dataclass(frozen=True, slots=True)
class LoadPackage:
    """The jobs of a load package, all of which are completed, and what the package drops.

    Attributes
    ----------
    load_id : str
        The time at which dlt has made the package, as text.
    digest : str
        What identifies the package among others that have its load id.
    chains : sequence of sequence of str
        Names of tables that are written together: a root table, then those nested in it.
    files : Mapping of str to sequence of str
        Paths of Parquet files by the name of their table.
    models : Mapping of str to sequence of str
        Queries of models by the name of their table.
    dropped, truncated : sequence of str
        Names of tables that a refresh drops, or empties.
    """

    load_id: str
    digest: str
    chains: Sequence[Sequence[str]]
    files: Mapping[str, Sequence[str]]
    models: Mapping[str, Sequence[str]]
    dropped: Sequence[str]
    truncated: Sequence[str]


def is_in_package() -> bool:
    """Return whether dlt is loading a package in this thread."""
    return _context() is not None


def current_package(load_id: str, schema: Schema) -> LoadPackage:
    """Return the package that dlt is loading.

    Raises
    ------
    InvalidOperation
        dlt is loading no package, or another one, or a job of the package is not completed, or
        its file is gone.
    """
    context = _context()
    if context is None or context.load_id != load_id:
        raise InvalidOperation(
            f"dlt is not loading package {load_id!r}: let its pipeline complete it, pipeline.load()"
        )
    storage = context.storage
    jobs: list[_Job] = list(storage.list_all_jobs_with_states(load_id))
    done = [job for state, job in jobs if state == "completed_jobs"]
    _refuse_lost(load_id, context.state, done)
    return LoadPackage(
        load_id,
        _digest(job for _, job in jobs),
        tuple(_chains(schema, jobs, {job.table_name for job in done})),
        _by_table((job.table_name, _path(storage, load_id, job)) for job in _of(done, "parquet")),
        _by_table(
            (job.table_name, _query(_path(storage, load_id, job))) for job in _of(done, "model")
        ),
        _names(context.state.get("dropped_tables", ())),
        _names(context.state.get("truncated_tables", ())),
    )


def _context() -> LoadPackageStateInjectableContext | None:
    try:
        return Container()[LoadPackageStateInjectableContext]
    except ContextDefaultCannotBeCreated:
        return None


def _refuse_lost(
    load_id: str, state: TLoadPackageState, done: Sequence[ParsedLoadJobFileName]
) -> None:
    """Refuse a package if a file is gone whose job dlt has noted as completed."""
    noted = state.get("load_metrics", {})
    completed = {job for job, metrics in noted.items() if metrics["state"] == "completed"}
    lost = sorted(completed - {job.job_id() for job in done})
    if lost:
        raise InvalidOperation(
            f"load package {load_id} has lost the file of job {lost[0]}: nothing of it is loaded; "
            "drop it, pipeline.drop_pending_packages(), and extract its data again"
        )


def _digest(jobs: Iterable[ParsedLoadJobFileName]) -> str:
    """Return what no other package has: dlt gives each file of a package a random id."""
    ids = sorted(f"{job.table_name}.{job.file_id}" for job in jobs)
    return hashlib.blake2b("\n".join(ids).encode(), digest_size=16).hexdigest()


def _chains(schema: Schema, jobs: Sequence[_Job], written: set[str]) -> Iterator[Sequence[str]]:
    """Yield the names of the tables that each root table with jobs is written with."""
    roots = {get_root_table(schema.tables, table)["name"] for table in written}
    for root in sorted(roots):
        chain = get_completed_table_chain(schema, jobs, get_root_table(schema.tables, root))
        if chain is None:
            raise InvalidOperation(
                f"table {root}: a job of the load package is not completed: load it again, "
                "pipeline.load()",
                table=root,
            )
        yield [table["name"] for table in chain]


def _of(jobs: Iterable[ParsedLoadJobFileName], kind: str) -> Iterator[ParsedLoadJobFileName]:
    return (job for job in jobs if job.file_format == kind)


def _path(storage: PackageStorage, load_id: str, job: ParsedLoadJobFileName) -> str:
    relative = storage.get_job_file_path(load_id, "completed_jobs", job.file_name())
    return str(storage.storage.make_full_path(relative))


def _query(path: str) -> str:
    """Return the query of a model in the lake's SQL."""
    with FileStorage.open_zipsafe_ro(path, "r", encoding="utf-8") as file:
        model = SqlModel.from_file(file, "duckdb")
    if getattr(model, "attach", None):
        raise InvalidOperation(
            f"model {path} reads a dataset outside of the lake: load its rows instead of a query"
        )
    [query] = sqlglot.transpile(model.to_sql(), read=model.query_dialect, write="duckdb")
    return query


def _by_table(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for table, value in pairs:
        found.setdefault(table, []).append(value)
    return found


def _names(tables: Iterable[TTableSchema]) -> list[str]:
    return [table["name"] for table in tables]

"""Connect to a lake."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from lakevilla.api.arguments import check_choice, check_flag
from lakevilla.api.border import at_border
from lakevilla.api.client.catalogs import Catalogs, check_catalogs, mount_catalogs, pickled
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.heartbeat import check_lease
from lakevilla.api.execution.executor import Executor
from lakevilla.api.lake import Lake
from lakevilla.api.showing import register_formatter
from lakevilla.api.spark.client import SparkClient, SparkReader
from lakevilla.api.spark.executor import SparkExecutor
from lakevilla.api.spark.source import Access, offer
from lakevilla.engines.spark.session import check_session, tasks_at_once
from lakevilla.engines.spark.tasks import LakeAddress
from lakevilla.errors import InvalidOperation, LakeVillaWarning
from lakevilla.lake.context import Event
from lakevilla.settings import Settings, shown
from lakevilla.store.backends.endpoints import azure_account
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.backends.reach import Reach, outside_paths
from lakevilla.store.backends.sessions import session_of
from lakevilla.store.location import (
    refuse_connection_string,
    refuse_half_scheme,
    root_location,
    table_around,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@overload
def connect(
    root: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, object] | None = ...,
    spark: None = ...,
    settings: Settings | None = ...,
    boto3_session: object | None = ...,
    conditional_writes: Literal["require", "check"] = ...,
    spark_reader: SparkReader = ...,
    on_event: Callable[[Event], None] | None = ...,
    progress: bool = ...,
    catalogs: Catalogs | None = ...,
    files_outside: Sequence[str | os.PathLike[str]] = ...,
) -> Lake[pa.Table]: ...


@overload
def connect(
    root: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, object] | None = ...,
    spark: SparkSession,
    settings: Settings | None = ...,
    boto3_session: object | None = ...,
    conditional_writes: Literal["require", "check"] = ...,
    spark_reader: SparkReader = ...,
    on_event: Callable[[Event], None] | None = ...,
    progress: bool = ...,
    catalogs: Catalogs | None = ...,
    files_outside: Sequence[str | os.PathLike[str]] = ...,
) -> Lake[DataFrame]: ...


@at_border
def connect(
    root: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, object] | None = None,
    spark: SparkSession | None = None,
    settings: Settings | None = None,
    boto3_session: object | None = None,
    conditional_writes: Literal["require", "check"] = "require",
    spark_reader: SparkReader = "auto",
    on_event: Callable[[Event], None] | None = None,
    progress: bool = False,
    catalogs: Catalogs | None = None,
    files_outside: Sequence[str | os.PathLike[str]] = (),
) -> Lake[Any]:
    """Connect to the lake in a directory of an object store or of this machine.

    This makes no request; the first transaction does. The only exception is a ``lease_seconds``
    below the default, which is checked against the store's latency. In a notebook, IPython shows
    each ``pyarrow.Table`` as a table from now on.

    Parameters
    ----------
    root : str or os.PathLike
        ``s3://``, ``gs://``, ``az://``, ``abfss://``, ``file://``, ``memory://`` or a local path.
    storage_options : Mapping, optional
        The same keys as for deltalake.
    spark : SparkSession, optional
        A session, classic or Connect. Frames are then its DataFrames, and its jobs read and
        write rows. The session gets the data source ``lakevilla``; see
        ``register_data_source``.
    settings : Settings, optional
        Limits and times; see ``Settings``.
    boto3_session : boto3.Session, optional
        Provides the credentials for S3; a botocore session works too.
    conditional_writes : {"require", "check"}
        For a store that does not support conditional writes: refuse to write there, or check before
        and after each write. Checks are best effort: if two clients write at the same time, and one
        of them very slowly, a commit can be lost unnoticed. A store that can create but not replace
        objects conditionally needs no checks; it has no queues and saved transactions.
    spark_reader : {"auto", "native", "python"}
        With ``spark``, the reader of unchanged data: the session's connector for the format if
        there is one, only that connector, or LakeVilla's own tasks.
    on_event : callable, optional
        Called with an ``Event`` for each redo, retry, help and reconcile, for each phase of a
        transaction with its seconds, and for the transaction's end; the transaction waits for the
        call. For an operation that takes more than two seconds, it is called twice a second from
        another thread with the rows, files and bytes done so far (``progress``).
    progress : bool
        Show the same numbers in a terminal or a notebook while the operation runs.
    catalogs : Mapping, optional
        pyiceberg catalogs by name, or properties for ``load_catalog``. Their tables are named
        ``name.namespace.table``. All clients of the lake must use the same names.
    files_outside : sequence of str or os.PathLike, optional
        Directories elsewhere, by URI or absolute path. If a table's log or metadata names a file
        there, the file may be read. Otherwise only files below the root and in the directories of
        the lake's tables are read (see docs/security.md).

    Raises
    ------
    InvalidOperation
        The root or an option is wrong, or the lease is too short for the store.

    Examples
    --------
    >>> lake = lv.connect("warehouse")
    >>> lake.exists()  # nothing was written yet
    False
    """
    root = _checked_root(root)
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise InvalidOperation("storage_options maps names to values, as deltalake takes them")
    if settings is not None and not isinstance(settings, Settings):
        raise InvalidOperation(f"settings must be lakevilla.Settings(...), not {shown(settings)}")
    check_choice("conditional_writes", conditional_writes, "require", "check")
    check_choice("spark_reader", spark_reader, "auto", "native", "python")
    if on_event is not None and not callable(on_event):
        raise InvalidOperation(f"on_event must be a function of one event, not {shown(on_event)}")
    if spark is not None:
        check_session(spark)
        if root_location(root).scheme == "memory":
            raise InvalidOperation(
                f"the lake {root} lives in the memory of this process, and Spark's workers are "
                "other processes: use a directory that they share, or an object store"
            )
    client = open_client(
        root,
        storage_options=storage_options,
        settings=settings or Settings(),
        boto3_session=boto3_session,
        conditional_writes=conditional_writes,
        on_event=on_event,
        progress=check_flag("progress", progress),
        catalogs=check_catalogs(catalogs),
        files_outside=outside_paths(files_outside),
        spark=None if spark is None else SparkFrames(spark, spark_reader),
    )
    register_formatter()
    client.run(check_lease(client.settings, client.context.clock))
    lake: Lake[Any] = Lake(client, Executor if spark is None else SparkExecutor)
    around = table_around(lake.root)
    if around is not None:
        warnings.warn(
            f"the root {lake.root} is, or lies inside, the directory of the table {around}: a full "
            "VACUUM of that table by any client deletes tables that are made here; connect to "
            f"{os.path.dirname(around)}, or to another directory",
            LakeVillaWarning,
            stacklevel=3,  # beyond the border
        )
    return lake


@dataclass(frozen=True, slots=True)
class SparkFrames:
    """The Spark session of a lake, whose DataFrames are the lake's frames.

    After unpickling, the session is None until a caller passes a DataFrame.
    """

    session: SparkSession | None
    reader: SparkReader


def open_client(
    root: str,
    *,
    storage_options: Mapping[str, object] | None,
    settings: Settings,
    boto3_session: object | None = None,
    catalogs: Catalogs,
    files_outside: Sequence[str],
    spark: SparkFrames | None = None,
    **given: Any,
) -> LakeClient:
    """Return a client of a lake, from checked arguments; make no request to the store."""
    store = open_store(root, storage_options, boto3_session=boto3_session, settings=settings)
    reach = Reach(store.root.uri, files_outside, azure_account(storage_options))
    for outside in files_outside:
        store.name(root_location(outside).uri)
    mount_catalogs(store, catalogs, settings, reach.admit)
    options = None if storage_options is None else dict(storage_options)

    def current() -> Settings:
        """Return the settings, with the stores that the caller has named since ``connect``."""
        return replace(settings, stores=store.named)

    def reopen() -> tuple[Callable[..., LakeClient], tuple[()]]:
        open_again = partial(
            open_client,
            root,
            storage_options=options,
            settings=current(),
            catalogs=pickled(catalogs),
            files_outside=files_outside,
            spark=None if spark is None else SparkFrames(None, spark.reader),
            **arguments,
        )
        return open_again, ()

    arguments = dict(given)
    # Never pickle the boto3 session: its credentials would be stored in the pickle.
    given |= {"settings": settings, "catalogs": catalogs, "reopen": reopen, "reach": reach}
    uri = store.root.uri
    if spark is None:
        return LakeClient(uri, store, **given)

    def workers() -> LakeAddress:
        return LakeAddress(uri, {**(options or {}), **frozen(boto3_session)} or options, current())

    if spark.session is not None:
        tasks = tasks_at_once(spark.session)
        place = replace(workers(), elsewhere=reach.elsewhere)
        access = Access(place, given["conditional_writes"], catalogs=pickled(catalogs))
        offer(spark.session, access if tasks is None else replace(access, tasks=tasks))
    return SparkClient(
        uri, store, spark=spark.session, workers=workers, reader=spark.reader, **given
    )


def frozen(boto3_session: Any) -> dict[str, str]:
    """Return a session's present credentials as storage options, to be passed to workers."""
    session = session_of(boto3_session)
    if session is None:
        return {}
    found = session.get_credentials()
    if found is None:
        return {}
    now = found.get_frozen_credentials()
    options = {"aws_access_key_id": now.access_key, "aws_secret_access_key": now.secret_key}
    if now.token:
        options["aws_session_token"] = now.token
    if session.region_name:
        options["aws_region"] = session.region_name
    return options


def _checked_root(root: str | os.PathLike[str]) -> str:
    """Return the root, if it can be a directory and is not a local file."""
    root = os.fspath(root) if isinstance(root, os.PathLike) else root
    if not _may_be_place(root):
        raise InvalidOperation(
            f"root {shown(root)} is neither a path nor a URI: give a URI like s3://bucket/path, "
            "or the path of a directory"
        )
    refuse_connection_string(root)
    refuse_half_scheme(root)
    place = root_location(root)
    if place.scheme == "file" and os.path.isfile(f"/{place.path}"):
        raise InvalidOperation(
            f"the root {root} is a file, and a lake is a directory: check the root"
        )
    return root


def _may_be_place(root: object) -> bool:
    if not isinstance(root, str) or root == "" or "\0" in root:
        return False
    try:
        os.fsencode(root)
    except UnicodeEncodeError:
        return False
    return True

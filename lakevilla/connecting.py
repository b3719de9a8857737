"""Connecting to a lake."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from lakevilla.api.arguments import check_choice
from lakevilla.api.lake import Lake
from lakevilla.api.spark.lake import SparkLake, SparkReader
from lakevilla.api.spark.source import Access, offer
from lakevilla.client.catalogs import Catalogs, check_catalogs, mount_catalogs, pickled
from lakevilla.client.lease import check_lease
from lakevilla.engines.spark.session import check_session
from lakevilla.engines.spark.tasks import Place
from lakevilla.errors import InvalidOperation, LakeVillaWarning
from lakevilla.lake.context import Event
from lakevilla.settings import Settings, shown
from lakevilla.store.backends.object_store import open_store, session_of
from lakevilla.store.location import refuse_half_scheme, root_location, table_around

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["connect"]


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
    catalogs: Catalogs | None = ...,
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
    catalogs: Catalogs | None = ...,
) -> Lake[DataFrame]: ...


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
    catalogs: Catalogs | None = None,
) -> Lake[Any]:
    """Connect to the lake at a directory of an object store, or of this machine.

    Asks nothing of the store: the first transaction does. Only a ``lease_seconds`` below the
    default is held against the store's latency.

    Parameters
    ----------
    root : str or os.PathLike
        ``s3://``, ``gs://``, ``az://``, ``abfss://``, ``file://``, ``memory://`` or a local path.
    storage_options : Mapping, optional
        The keys that deltalake takes.
    spark : SparkSession, optional
        Frames are DataFrames of this session, classic or Connect, and rows are read and
        written by its jobs. It gets the data source ``lakevilla``; see
        ``register_data_source``.
    settings : Settings, optional
        Numbers with units.
    boto3_session : boto3.Session, optional
        Gives the credentials for S3; a session of botocore does too.
    conditional_writes : {"require", "check"}
        What to do with a store that does not honour conditional writes: refuse to write
        there, or check before and after each write. Checks are best effort: two clients that
        write at the same time, one of them very slowly, can lose a commit unnoticed. A store
        that creates only what is absent needs neither; it has no queues and saved transactions.
    spark_reader : {"auto", "native", "python"}
        With ``spark``, how unchanged data is read: by the session's connector for the format
        where it has one, by that alone, or by LakeVilla's own tasks.
    on_event : callable, optional
        Told of redos, retries, helping and reconciling.
    catalogs : Mapping, optional
        pyiceberg catalogs by name, or the properties that ``load_catalog`` makes one of. Their
        tables are named ``name.namespace.table``. All who share the lake use the same names.

    Raises
    ------
    InvalidOperation
        The root or an option is not understood, or the lease is shorter than the store allows.
    """
    root = os.fspath(root) if isinstance(root, os.PathLike) else root
    if not _may_be_place(root):
        raise InvalidOperation(
            f"root {shown(root)} is no place: give a URI like s3://bucket/path, or the path of a "
            "directory"
        )
    refuse_half_scheme(root)
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
                "others: use a directory that they share, or an object store"
            )
        opener: Callable[..., Lake] = partial(open_spark_lake, spark, spark_reader)
    else:
        opener = open_lake
    lake = opener(
        root,
        storage_options=storage_options,
        settings=settings or Settings(),
        boto3_session=boto3_session,
        conditional_writes=conditional_writes,
        on_event=on_event,
        catalogs=check_catalogs(catalogs),
    )
    lake.runner.run(check_lease(lake.settings, lake.context.clock))
    around = table_around(lake.root)
    if around is not None:
        warnings.warn(
            f"the root {lake.root} is, or lies inside, the directory of the table {around}: a full "
            "VACUUM of that table by any client deletes tables that are made here; connect to "
            f"{os.path.dirname(around)}, or to another directory",
            LakeVillaWarning,
            stacklevel=2,
        )
    return lake


def open_lake(
    root: str,
    *,
    storage_options: Mapping[str, object] | None,
    settings: Settings,
    boto3_session: object | None = None,
    catalogs: Catalogs,
    **given: Any,
) -> Lake:
    """A lake whose arguments were looked at; asks nothing of the store."""
    store = open_store(root, storage_options, boto3_session=boto3_session, settings=settings)
    mount_catalogs(store, catalogs, settings)
    options = None if storage_options is None else dict(storage_options)
    again = partial(
        open_lake,
        root,
        storage_options=options,
        settings=settings,
        catalogs=pickled(catalogs),
        **given,
    )
    return Lake(
        root_location(root).uri,
        store,
        settings=settings,
        catalogs=catalogs,
        **given,
        # Never the session that gives credentials: they would lie in the pickle.
        reopen=lambda: (again, ()),
    )


def open_spark_lake(
    spark: SparkSession | None,
    reader: SparkReader,
    root: str,
    *,
    storage_options: Mapping[str, object] | None,
    settings: Settings,
    boto3_session: object | None = None,
    catalogs: Catalogs,
    **given: Any,
) -> SparkLake:
    """As ``open_lake``, for the rows of a Spark session; None until a frame brings one."""
    store = open_store(root, storage_options, boto3_session=boto3_session, settings=settings)
    mount_catalogs(store, catalogs, settings)
    options = None if storage_options is None else dict(storage_options)
    again = partial(
        open_spark_lake,
        None,
        reader,
        root,
        storage_options=options,
        settings=settings,
        catalogs=pickled(catalogs),
        **given,
    )
    uri = root_location(root).uri

    def workers() -> Place:
        return Place(uri, {**(options or {}), **frozen(boto3_session)} or options, settings)

    if spark is not None:
        offer(spark, Access(workers(), given["conditional_writes"]))
    return SparkLake(
        uri,
        store,
        settings=settings,
        catalogs=catalogs,
        **given,
        reopen=lambda: (again, ()),
        spark=spark,
        workers=workers,
        reader=reader,
    )


def frozen(boto3_session: Any) -> dict[str, str]:
    """A session's credentials as they are now, as storage options: what workers can be given."""
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


def _may_be_place(root: object) -> bool:
    if not isinstance(root, str) or root == "" or "\0" in root:
        return False
    try:
        os.fsencode(root)
    except UnicodeEncodeError:
        return False
    return True

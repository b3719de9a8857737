"""Connecting to a lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from lakevilla.api.lake import Lake
from lakevilla.api.lease import check_lease
from lakevilla.errors import InvalidOperation
from lakevilla.settings import Settings
from lakevilla.store.location import root_location
from lakevilla.store.obstore_backend import open_store
from lakevilla.transaction.context import Event

__all__ = ["connect"]


def connect(
    root: str,
    *,
    storage_options: Mapping[str, object] | None = None,
    settings: Settings | None = None,
    boto3_session: object | None = None,
    conditional_writes: Literal["require", "check"] = "require",
    on_event: Callable[[Event], None] | None = None,
) -> Lake:
    """Connect to the lake at a directory of an object store, or of this machine.

    Asks nothing of the store: the first transaction does. Only a ``lease_seconds`` below the
    default is held against the store's latency.

    Parameters
    ----------
    root : str
        ``s3://``, ``gs://``, ``az://``, ``abfss://``, ``file://``, ``memory://`` or a local path.
    storage_options : Mapping, optional
        The keys that deltalake takes.
    settings : Settings, optional
        Numbers with units.
    boto3_session : boto3.Session, optional
        Gives the credentials for S3.
    conditional_writes : {"require", "check"}
        What to do with a store that does not honour conditional writes: refuse to write
        there, or check before and after each write. Checks are best effort: two clients that
        write at the same time, one of them very slowly, can lose a commit unnoticed. A store
        that creates only what is absent needs neither; it has no queues and saved transactions.
    on_event : callable, optional
        Told of redos, retries, helping and reconciling.

    Raises
    ------
    InvalidOperation
        The root or an option is not understood, or the lease is shorter than the store allows.
    """
    if not _may_be_place(root):
        raise InvalidOperation(
            f"root {root!r} is no place: give a URI like s3://bucket/path, or a directory's path"
        )
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise InvalidOperation("storage_options maps names to values, as deltalake takes them")
    if settings is not None and not isinstance(settings, Settings):
        raise InvalidOperation(f"settings must be lakevilla.Settings(...), not {settings!r}")
    if conditional_writes not in ("require", "check"):
        raise InvalidOperation(
            f"conditional_writes must be 'require' or 'check', not {conditional_writes!r}"
        )
    settings = settings or Settings()
    store = open_store(root, storage_options, boto3_session=boto3_session, settings=settings)
    options = None if storage_options is None else dict(storage_options)

    def reopen() -> tuple[Any, ...]:
        return _connect, (root, options, settings, on_event, conditional_writes)

    lake = Lake(
        root_location(root).uri,
        store,
        settings=settings,
        on_event=on_event,
        conditional_writes=conditional_writes,
        reopen=reopen,
    )
    lake.runner.run(check_lease(settings, lake.context.clock))
    return lake


def _may_be_place(root: object) -> bool:
    return isinstance(root, str) and root != "" and "\0" not in root


def _connect(
    root: str,
    storage_options: dict[str, object] | None,
    settings: Settings,
    on_event: Callable[[Event], None] | None,
    conditional_writes: Literal["require", "check"],
) -> Lake:
    return connect(
        root,
        storage_options=storage_options,
        settings=settings,
        conditional_writes=conditional_writes,
        on_event=on_event,
    )

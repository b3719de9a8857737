"""Lakes that the processes of a Spark session can open: what ``connect`` was given, by root."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Literal

from lakevilla.api.begin import begin_transaction
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.engines.spark.tasks import LakeAddress
from lakevilla.errors import InvalidOperation
from lakevilla.settings import Settings
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.backends.reach import Reach, azure_account, outside_paths
from lakevilla.store.location import refuse_half_scheme, root_location

__all__ = ["Access", "access_to", "goes_on", "lake_at", "opened", "opened_on", "reaching"]


@dataclass(frozen=True, slots=True)
class Access:
    """How to open a lake that is only read. Its ``repr`` tells no secret.

    ``tasks``: for about so many at a time are its tables cut, if a read does not say it.
    """

    place: LakeAddress
    conditional_writes: Literal["require", "check"] = "require"
    tasks: int = 32


def access_to(lakes: bytes, root: str, files_outside: Sequence[str] = ()) -> Access:
    """The way to a lake: as it was connected to in the session, else by what the machine has.

    ``lakes`` are pickled: ways by root. ``files_outside``: from where files are read besides.
    """
    refuse_half_scheme(root)
    uri = root_location(root).uri
    if uri.startswith("memory:"):
        raise InvalidOperation(
            f"the lake {uri} lives in the memory of one process, and Spark reads in others: "
            "use a directory or an object store"
        )
    known: dict[str, Access] = pickle.loads(lakes)
    access = known.get(uri) or Access(LakeAddress(uri, None, Settings()))
    reach = Reach(uri, [*access.place.elsewhere, *outside_paths(files_outside)])
    return reaching(access, reach.elsewhere)


def reaching(access: Access, elsewhere: tuple[str, ...]) -> Access:
    """A way to a lake for processes that read there, too."""
    return replace(access, place=replace(access.place, elsewhere=elsewhere))


def opened(access: Access) -> LakeClient:
    """A client of the lake, one for all calls in a process: it keeps what it knows."""
    return _opened(pickle.dumps(access))


def opened_on(access: Access, ref: str | None) -> LakeClient:
    """The same at a ref; the lake itself if that is None."""
    client = opened(access)
    return client if ref is None else client.on(ref)


def goes_on(access: Access, ref: str | None) -> bool:
    """Whether a ref has a history that goes on, as a branch and the lake itself have."""
    return opened_on(access, ref).at is None


@contextmanager
def lake_at(
    access: Access,
    version: int | None = None,
    timestamp: datetime | None = None,
    ref: str | None = None,
) -> Iterator[Executor]:
    """A transaction that only reads, bound as ``lake.snapshot`` binds one, or ``lake.on(ref)``."""
    client = opened_on(access, ref)
    executor: Executor = begin_transaction(client, Executor, read_only=True)
    if version is not None or timestamp is not None:
        executor.bind_to(version, timestamp)
    try:
        yield executor
    finally:
        executor.abort()


@lru_cache(maxsize=8)
def _opened(pickled: bytes) -> LakeClient:
    access: Access = pickle.loads(pickled)
    place = access.place
    store = open_store(place.root, place.storage_options, settings=place.settings)
    for outside in place.elsewhere:
        store.name(outside)
    return LakeClient(
        place.root,
        store,
        settings=place.settings,
        conditional_writes=access.conditional_writes,
        reach=Reach(place.root, place.elsewhere, azure_account(place.storage_options)),
    )

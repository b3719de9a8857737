"""One store for a lake: keys relative to its root, and absolute ones elsewhere."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable

from lakevilla.errors import InvalidOperation
from lakevilla.forked import lock
from lakevilla.store.base import (
    Condition,
    Failure,
    GetOutcome,
    Missing,
    ObjectInfo,
    Refused,
    Store,
    Stored,
    Token,
)
from lakevilla.store.location import (
    Location,
    account_of,
    catalog_of,
    check_key,
    in_account,
    is_external,
    is_in_catalog,
    parse_location,
)


class LakeStore:
    """A store that sends each request to the backend that holds its key.

    A relative key is below ``root``; an absolute one (a URI or an absolute
    path, literal) goes to another bucket or directory, opened when first
    needed. The keys of catalogs go to the store that was mounted for them.

    Objects of the lake may hold any key. So of other stores only those are opened that the
    caller has named, and this machine's disk is never opened from a lake on an object store
    (docs/design/0052-deletion-stays-inside.md).

    Parameters
    ----------
    root : Location
        The lake's directory.
    open_backend : callable
        Opens the bucket, container or file system of a location; its keys are whole paths.
    named : iterable of str, optional
        Places, besides the root, whose stores the caller has named.
    account : str, optional
        The Azure account of containers that are named without one, if the root names none.

    Attributes
    ----------
    place : str
        The root, and the endpoint of its store if one is set: for messages.
    """

    def __init__(
        self,
        root: Location,
        open_backend: Callable[[Location], Store],
        named: Iterable[str] = (),
        account: str | None = None,
    ) -> None:
        self.root = root
        self._account = account_of(root) or account
        self.place = root.uri
        self._open_backend = open_backend
        self._lock = lock()
        self._at_root = open_backend(root.store)
        self._backends: dict[Location, Store] = {root.store: self._at_root}
        self._named = {root.store, *(self._parsed(place).store for place in named)}
        self._catalogs: Store | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """The other stores that may be opened."""
        return tuple(sorted(store.uri for store in self._named - {self.root.store}))

    def name(self, location: str) -> None:
        """Record that the caller has named a place, so that its store may be opened."""
        if is_external(location) and not is_in_catalog(location):
            self._named.add(self._parsed(location).store)

    def mount(self, catalogs: Store) -> None:
        """Let ``catalogs`` answer keys ``catalog://...``, which it receives whole."""
        self._catalogs = catalogs

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        backend, path = self._place(key)
        return backend.get(path, known, byte_range)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        backend, path = self._place(key)
        return backend.put(path, body, condition)

    def put_file(self, key: str, path: str) -> Stored | Failure:
        if not os.path.isfile(path):
            raise InvalidOperation(f"there is no local file {path!r} to upload to {key!r}")
        backend, place = self._place(key)
        return backend.put_file(place, path)

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        backend, place = self._place(key)
        other, origin = self._place(source)
        if other is not backend:
            raise InvalidOperation(f"{source!r} is in another store than {key!r}: upload it")
        return backend.copy_object(origin, place)

    def head(self, key: str) -> ObjectInfo | Missing | Failure:
        backend, path = self._place(key)
        outcome = backend.head(path)
        return dataclasses.replace(outcome, key=key) if isinstance(outcome, ObjectInfo) else outcome

    def list(
        self, prefix: str, start_after: str | None = None, until: str | None = None
    ) -> list[ObjectInfo] | Failure:
        prefix = prefix.rstrip("/")
        backend, path = self._place(prefix)
        after = None if start_after is None else self._place(start_after)[1]
        last = None if until is None else self._place(until)[1]
        outcome = backend.list(path, after, last)
        if isinstance(outcome, Failure):
            return outcome
        # Listed objects are returned in the spelling of the request.
        spelled, cut = f"{prefix}/" if prefix else "", len(path) + 1 if path else 0
        return [
            dataclasses.replace(info, key=spelled + info.key[cut:])
            for info in outcome
            if (after is None or info.key > after) and (last is None or info.key <= last)
        ]

    def list_names(self, prefix: str) -> tuple[str, ...] | Failure:
        backend, path = self._place(prefix.rstrip("/"))
        return backend.list_names(path)

    def delete(self, key: str) -> Failure | None:
        backend, path = self._place(key)
        return backend.delete(path)

    def local_path(self, key: str) -> str | None:
        backend, path = self._place(key)
        return backend.local_path(path)

    def _place(self, key: str) -> tuple[Store, str]:
        if is_in_catalog(key):
            if self._catalogs is None:
                name = catalog_of(key)
                raise InvalidOperation(
                    f"the catalog {name!r} is none that this lake was connected with: connect with "
                    f"catalogs={{{name!r}: ...}}"
                )
            return self._catalogs, key
        if "://" not in key and not key.startswith("/"):
            root = self.root.path
            path = f"{root}/{key}" if root and key else root or key
            return self._at_root, check_key(path) if path else path
        location = self._parsed(key)
        return self._backend(location.store), location.path

    def _parsed(self, location: str) -> Location:
        return in_account(parse_location(location), self._account)

    def _backend(self, store: Location) -> Store:
        backend = self._backends.get(store)
        if backend is None:
            self._refuse_unnamed(store)
            with self._lock:
                backend = self._backends.get(store)
                if backend is None:
                    backend = self._backends[store] = self._open_backend(store)
        return backend

    def _refuse_unnamed(self, store: Location) -> None:
        if store.scheme == "file":
            raise InvalidOperation(
                f"the lake {self.root.uri} is on an object store, and one of its objects names a "
                "path on this machine's disk, which is never opened from there: keep the table on "
                "the store, or connect to a lake in a directory"
            )
        if store not in self._named:
            raise InvalidOperation(
                f"the lake {self.root.uri} names {store.uri}, another store, which is not in this "
                f"client's settings: connect with settings=Settings(stores=({store.uri!r},)) if "
                "it may be read and written"
            )

"""The objects beyond the lake's root that are read (docs/design/0057-files-elsewhere.md).

A table's log, and Iceberg's metadata, name files by any URI. A client that may write them is not
thereby allowed to make this process read other files. Objects are read if they are below the root,
in the directory of a table of the lake or of one that the caller named, or where the caller allows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown
from lakevilla.store.location import (
    Location,
    account_of,
    in_account,
    is_external,
    is_in_catalog,
    parse_location,
    real_place,
    root_location,
)

#: Schemes of lakes that only their own machine, or process, can write.
_OWN_MACHINE = frozenset({"file", "memory"})


class Reach:
    """The places whose objects a lake reads; safe to use from many threads.

    Parameters
    ----------
    root : str
        The lake's root.
    files_outside : iterable of str
        Directories, or files, elsewhere.
    account : str, optional
        The Azure account of containers that are named without one.

    Raises
    ------
    InvalidOperation
        One of them is no absolute path and no URI, or a lake on a store would read local files.
    """

    def __init__(
        self, root: str, files_outside: Iterable[str] = (), account: str | None = None
    ) -> None:
        self._root = root_location(root)
        self._account = account_of(self._root) or account
        self._places = {self._known(self._root)}
        for given in outside_paths(files_outside):
            place = root_location(given)
            if self._is_on_this_disk(place):
                raise InvalidOperation(
                    f"files_outside names {given!r}, which is on this machine: a lake on a store "
                    "reads no file of the machines of its clients"
                )
            self._places.add(self._known(place))

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """All places beyond the root, as another process's ``files_outside``."""
        root = self._known(self._root)
        return tuple(sorted(place.uri for place in set(self._places) - {root}))

    def admit(self, location: str) -> str:
        """Accept a directory as a table's, as the caller, the lake or a catalog has named it."""
        if is_external(location) and not is_in_catalog(location):
            place = _place_of(location)
            if place is not None:
                self._places.add(self._known(real_place(place)))
        return location

    def holds(self, key: str) -> bool:
        """Return whether an object may be read."""
        if not is_external(key) or is_in_catalog(key):
            return True
        place = _place_of(key)
        if place is None or self._is_on_this_disk(place):
            return False
        # The spelling is checked first: links are followed for roots that are reached by one.
        return self._covers(place) or (place.scheme == "file" and self._covers(real_place(place)))

    def opens(self, key: str, *, reading: bool = True) -> bool:
        """Return whether a request may go to an object's store; ``reading``: it only reads."""
        if not is_external(key) or is_in_catalog(key):
            return True
        place = _place_of(key)
        if place is None or self._is_on_this_disk(place):
            return False
        store = self._known(place).store
        return not reading or any(one.store == store for one in set(self._places))

    def around(self, key: str) -> list[str]:
        """Return the directories around an object, the nearest first, as locations of tables."""
        place = _place_of(key)
        if place is None or self._is_on_this_disk(place):
            return []
        return [one.uri for one in _around(place)][1:]

    def refusal(self, key: str, table: str | None = None) -> InvalidOperation:
        """Return the error for an object that is not read."""
        of_table = "a table" if table is None else f"table {table}"
        place = _place_of(key)
        if place is not None and self._is_on_this_disk(place):
            advice = (
                "which is on this machine: a lake on a store reads no such file. Bring its rows "
                "in by an append"
            )
        elif place is None:
            advice = "which is not a plain path: have its writer name it by another path"
        else:
            directory = replace(place, path=place.path.rpartition("/")[0]).uri
            advice = (
                "which is in no table of the lake: if you trust the writers of the table to name "
                f"it, connect with files_outside=[{directory!r}]"
            )
        return InvalidOperation(f"{of_table} names the file {key!r}, {advice}", table=table)

    def _covers(self, place: Location) -> bool:
        return any(one in self._places for one in _around(self._known(place)))

    def _known(self, place: Location) -> Location:
        """Return a place for comparison: a container of Azure with its account."""
        return in_account(place, self._account)

    def _is_on_this_disk(self, place: Location) -> bool:
        return place.scheme == "file" and self._root.scheme not in _OWN_MACHINE


def outside_paths(given: object) -> tuple[str, ...]:
    """Return the paths that a caller gives as ``files_outside``. Raises ``InvalidOperation``."""
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidOperation(
            f"files_outside is a list of directories, such as ['s3://other/data'], not "
            f"{shown(given)}"
        )
    found = tuple(os.fspath(one) if isinstance(one, os.PathLike) else one for one in given)
    for one in found:
        if not isinstance(one, str) or not is_external(one):
            raise InvalidOperation(
                f"files_outside names {shown(one)}, which is neither a path nor a URI: give the "
                "URI or the absolute path of a directory"
            )
        parse_location(one)
    return found


def _place_of(key: str) -> Location | None:
    """Return the place of an object; None where a key can name no object."""
    try:
        return parse_location(key)
    except InvalidOperation:
        return None


def _around(place: Location) -> Iterator[Location]:
    """Yield a place and the directories around it, the nearest first."""
    path = place.path
    while path:
        yield replace(place, path=path)
        path = path.rpartition("/")[0]
    yield place.store

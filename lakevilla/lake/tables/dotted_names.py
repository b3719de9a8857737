"""Names with dots: ``a.b`` means ``a/b``, as in SQL, unless a table's path is ``a.b`` itself.

If both tables exist, the name is ambiguous, and refused; so is any operation that would add the
second of the two to the lake.
"""

from __future__ import annotations

from lakevilla.errors import InvalidOperation, LakeVillaError, StoreError, TableNotFound
from lakevilla.global_log.head import NOWHERE, Head, NameMap
from lakevilla.global_log.repo import load_names, load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.mounts import mount_of
from lakevilla.lake.table_log import known_tail
from lakevilla.store.effects import Program, parallel


def path_of(name: object) -> str | None:
    """Return the path that a dotted name means; None for any other name."""
    if not isinstance(name, str):
        return None
    parts = name.split(".")
    if len(parts) < 2 or "/" in name or not all(parts):
        return None
    return "/".join(parts)


def twin_of(location: str) -> str | None:
    """Return the other location under the root that has a name in common with this one, or None."""
    if "://" in location or location.startswith("/"):
        return None
    if "/" not in location:
        return path_of(location)
    return None if "." in location else location.replace("/", ".")


def meant(context: Context, head: Head | None, exact: str, path: str) -> Program[str]:
    """Return the one of two locations that is a table; ``path`` if none is.

    A table in the lake is preferred. The store is read only if neither is in the lake.

    Raises
    ------
    InvalidOperation
        Both locations are tables.
    """
    yield from load_tables(head, [exact, path])
    tables = [location for location in (exact, path) if is_in_lake(head, location)]
    if not tables:
        mounts = yield from parallel([mount_of(head, location) for location in (exact, path)])
        tables = [one for one, mount in zip((exact, path), mounts, strict=True) if mount]
    if not tables:
        found = yield from parallel([_is_there(context, location) for location in (exact, path)])
        tables = [
            location for location, is_there in zip((exact, path), found, strict=True) if is_there
        ]
    if len(tables) == 2:
        raise InvalidOperation(
            f"name {exact!r} could mean two tables, at {exact} and at {path}: write {path!r} for "
            f"the one, and {context.root.rstrip('/') + '/' + exact!r} for the other",
            table=exact,
        )
    return tables[0] if tables else path


def twin_in_lake(
    head: Head | None, name: str, *, own: str | None = None, names: NameMap | None = None
) -> Program[str | None]:
    """Return the reason if a table ``name`` would share a name with a table in HEAD; else None.

    That may be a table at a path, also one that a clone shows, or a registered name. ``own``: the
    location of the table itself, if ``name`` is not its path. ``names``: HEAD's names after other
    changes.
    """
    twin = twin_of(name)
    if head is None or twin is None:
        return None
    yield from load_tables(head, [twin])
    yield from load_names(head, [twin])
    called = (head.names if names is None else names).get(twin, NOWHERE)
    location = twin if called == NOWHERE else called
    if location == (own or name):
        return None
    is_there = called != NOWHERE or is_in_lake(head, twin)
    if not is_there and (yield from mount_of(head, twin)) is None:
        return None
    what = "which is in the lake," if called == NOWHERE else f"the registered name of {called},"
    return (
        f"table {name} and table {twin}, {what} could both be meant by {min(name, twin)!r}: choose "
        "another name"
    )


def refuse_twin(
    head: Head | None, name: str, *, own: str | None = None, names: NameMap | None = None
) -> Program[None]:
    """Refuse to add a table whose name could also mean a table that is in the lake already.

    Raises
    ------
    InvalidOperation
    """
    reason = yield from twin_in_lake(head, name, own=own, names=names)
    if reason is not None:
        raise InvalidOperation(reason, table=name)


def is_in_lake(head: Head | None, location: str) -> bool:
    """Return whether HEAD has the table; the table's leaf must be cached."""
    state = None if head is None else head.tables.get(location)
    return state is not None and not state.dropped


def _is_there(context: Context, location: str) -> Program[bool]:
    tail = known_tail(context, location)
    if tail is not None and tail.tip >= 0:
        return True
    try:
        yield from context.formats.open(location, location)
    except TableNotFound:
        return False
    except StoreError:
        raise
    except LakeVillaError:
        return True  # damaged, but it exists
    return True

"""What a statement calls a table: SQL reaches the lake's tables alone."""

from __future__ import annotations

from collections.abc import Container

from lakevilla.api.client.client import LakeClient
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.head import NOWHERE
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.tables.dotted_names import is_in_lake, path_of
from lakevilla.store.location import is_external, normalise_location


def refuse_places(client: LakeClient, table: str, known: Container[str] = ()) -> None:
    """Refuse what a statement calls a table if that is a place beyond the root.

    A table elsewhere that is in the lake may be spelled as ``tables`` lists it. ``known``:
    locations that the caller has opened in Python.

    Raises
    ------
    InvalidOperation
    """
    if client.settings.sql_uris:
        return
    for spelled in filter(None, (table, path_of(table))):
        try:
            place = normalise_location(client.root, spelled)
        except InvalidOperation:
            continue  # no place at all: told where it is looked for
        if is_external(place) and place not in known and not _is_the_lakes(client, table, place):
            raise InvalidOperation(
                f"{table!r} is a place, and SQL reaches the tables of the lake alone: give it a "
                f"name by lake.register('name', {table!r}), or connect with "
                "settings=lakevilla.Settings(sql_uris=True) if all who write SQL here may read "
                "and write whatever this process can",
                table=table,
            )


def _is_the_lakes(client: LakeClient, table: str, place: str) -> bool:
    """Whether the lake has a table of that name, or at that place."""
    head = client.head()
    if client.names(head, table).get(table, NOWHERE) != NOWHERE:
        return True
    client.run(load_tables(head, [place]))
    return is_in_lake(head, place)

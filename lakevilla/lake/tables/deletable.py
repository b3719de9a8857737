"""The gate before each deletion at a table's place: is it the lake's to delete there, and what.

What the objects of a lake say is trusted no further than the lake they lie in: whoever can write
HEAD must not be able to have other places emptied (docs/design/0052-deletion-stays-inside.md).
"""

from __future__ import annotations

import re

from lakevilla.errors import InvalidOperation, LakeVillaError, StoreError
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import claim_of, lake_key
from lakevilla.lake.context import Context
from lakevilla.store.effects import Program
from lakevilla.store.location import is_external, normalise_location

#: Directories that hold what a lake, or a log, keeps: no table lies there.
_KEPT = frozenset({"_lakevilla", "_delta_log"})

#: What tables are made of, as paths in their directory.
_OF_A_TABLE = re.compile(
    r"""
      (?:_delta_log|_lakevilla|_delta_index|_symlink_format_manifest) /.+
    | metadata/ (?: [^/]+\.metadata\.json (?:\.gz)? | version-hint\.text )
    | (?:.*/)? [^/]+\. (?:parquet|orc|avro|puffin|stats)
    | (?:.*/)? deletion_vector_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12} \.bin
    | (?:.*/)? \.[^/]+\.crc                                  # Hadoop's checksums
    | (?:.*/)? (?:_SUCCESS|_metadata|_common_metadata|_started_\d+|_committed_\d+)
    """,
    re.VERBOSE | re.DOTALL,
)


def is_of_a_table(path: str) -> bool:
    """Whether a path, relative to a table's directory, has the shape of what tables are made of."""
    return _OF_A_TABLE.fullmatch(path) is not None


def held_back(
    context: Context, head: Head | None, location: str, table_id: str | None
) -> Program[str]:
    """Why nothing may be deleted at a table's place; ``""`` where something may.

    Under the root all is the lake's. Elsewhere the place itself has to say, by its claim, that it
    is this lake's and this table's: HEAD alone may say anything. ``table_id`` is None where what
    is to be deleted tells by its names that this lake has made it.
    """
    try:
        own = normalise_location(context.root, location)
    except InvalidOperation as error:
        return error.message
    if own != location or _KEPT.intersection(location.split("/")):
        return f"{location} is no place of a table of this lake (it is {own}): nothing is deleted"
    if not is_external(location):
        return ""
    try:
        claim = yield from claim_of(location)
    except StoreError:
        raise
    except LakeVillaError as error:
        return error.message
    # By the root too: a HEAD can be written to have another lake's id.
    ours = claim is not None and head is not None and claim.names(head)
    if claim is not None and ours and claim.root == context.root:
        if table_id in (None, claim.table_id):
            return ""
        says = f"names another table ({claim.table_id or 'none'})"
    else:
        says = "is not there" if claim is None else f"names the lake at {claim.root}"
    return (
        f"{location} lies outside of the lake, and {lake_key(location)} {says}: nothing is deleted "
        "there; delete it by hand if nobody needs it"
    )


def refuse_held_back(
    context: Context, head: Head | None, location: str, table_id: str | None
) -> Program[None]:
    """Refuse to delete at a place where nothing may be deleted.

    Raises
    ------
    InvalidOperation
    """
    why = yield from held_back(context, head, location, table_id)
    if why:
        raise InvalidOperation(f"table {location} was left alone: {why}", table=location)

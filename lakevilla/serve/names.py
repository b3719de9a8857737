"""Names of tables in a lake, as namespaces and tables of Iceberg's REST protocol.

A lake's name is a path: ``sales/eu/orders`` is the table ``orders`` of the namespace ``sales.eu``.
A client may use any text as a part of a name, a slash too. So a part is percent-encoded where it
would lead out of its directory, or to what is hidden: no name reaches the objects of the lake.
"""

from __future__ import annotations

from lakevilla.global_log.namespaces import ROOT, Namespace, decoded, encoded
from lakevilla.serve.refusal import Refusal

#: What separates the parts of a namespace in a path and a parameter, as the protocol has it.
SEPARATOR = "\x1f"
#: A store's keys, and the names of directories, have limits: so many bytes are left for a table's
#: name and for each of its parts.
_MOST_BYTES, _MOST_PART_BYTES = 600, 200


def parse_namespace(text: str) -> Namespace:
    """Return the namespace that a path or a parameter names.

    Raises
    ------
    Refusal
        A part is empty.
    """
    namespace = tuple(text.split(SEPARATOR))
    if not all(namespace):
        raise Refusal(
            400, "BadRequestException", f"namespace {dotted(namespace)!r}: a part is empty"
        )
    return namespace


def dotted(namespace: Namespace, *table: str) -> str:
    """Return a name as messages have it."""
    return ".".join((*namespace, *table))


def lake_names(namespace: Namespace, table: str) -> list[str]:
    """Return the names that the table may have in the lake, the likeliest first."""
    path, spelled = "/".join(map(encoded, namespace)), "/".join(namespace)
    found = [f"{path}/{encoded(table)}", f"{spelled}/{table}"]
    if namespace == ROOT:
        found = [encoded(table), table, *found]
    return list(dict.fromkeys(found))


def new_name(namespace: Namespace, table: str) -> str:
    """Return the name that a new table gets in the lake.

    Raises
    ------
    Refusal
        A part of the name, or all of it, is too long.
    """
    refuse_long((*namespace, table))
    return lake_names(namespace, table)[0]


def refuse_long(parts: tuple[str, ...]) -> None:
    """Refuse a name for which stores have no room."""
    lengths = [len(encoded(part).encode(errors="replace")) for part in parts]
    if max(lengths) > _MOST_PART_BYTES or sum(lengths) > _MOST_BYTES:
        message = f"a name has at most {_MOST_PART_BYTES} bytes a part, and {_MOST_BYTES} in all"
        raise Refusal(400, "BadRequestException", message)


def prefix_of(namespace: Namespace) -> str | None:
    """Return the beginning of the names of all tables in a namespace; None if there is no one."""
    path = "/".join(map(encoded, namespace))
    return f"{path}/" if namespace != ROOT and path == "/".join(namespace) else None


def identifier_of(name: str) -> tuple[Namespace, str]:
    """Return the namespace of a lake's table, and its name there."""
    *parts, table = map(decoded, name.split("/"))
    return tuple(parts) or ROOT, table

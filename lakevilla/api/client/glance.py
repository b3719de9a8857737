"""What a client knows of its lake, for shells and notebooks: what is at hand, or one GET more.

A glance binds nothing, and is never the ground for a decision.
"""

from __future__ import annotations

from weakref import ref

from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.names import TableNames
from lakevilla.display import table_html
from lakevilla.errors import InvalidOperation, LakeVillaError, TableNotFound
from lakevilla.formats.files import TableSize
from lakevilla.global_log.head import Head, TableState, shown_tables
from lakevilla.global_log.repo import glance, load_all, load_tables
from lakevilla.lake.frozen.mounts import mount_of
from lakevilla.lake.tables.listing import all_shown


def summary(head: Head | None) -> str:
    """A state of a lake in few words; empty where none is known."""
    if head is None:
        return ""
    count = sum(not table.dropped for table in head.tables.at_hand().values())
    more = " and more" if head.tables.missing() else ""
    return f", version {head.sequence}, {count} table{'' if count == 1 else 's'}{more}"


def place_of(client: LakeClient) -> str:
    """The ref that a client is bound to, and what is known of its state, in few words."""
    return f"{ref_of(client)}{summary(known_head(client))}"


def ref_of(client: LakeClient) -> str:
    """The ref that a client is bound to, as its repr says; empty for the lake itself."""
    if client.branch is not None:
        return f" on branch {client.branch!r}"
    return "" if client.at is None else f" at {client.at.base.kind} {client.at.name!r}"


def known_head(client: LakeClient) -> Head | None:
    """HEAD as it was when it was last looked at."""
    client = client.newest()
    if client.at is not None:
        return client.at.head
    return None if client.context.held is None else client.context.held.head


def tables_html(caption: str, client: LakeClient, head: Head | None) -> str:
    """The tables of a state of the lake, as far as HEAD itself tells of them."""
    if head is None:
        return table_html(caption, (), ())
    rows = [
        (
            name,
            head.tables[location].format,
            _version(client, location, head.tables[location]),
            "guarded" if head.tables[location].guarded else "",
            client.uri_of(location),
        )
        for name, location in shown_tables(head).items()
    ]
    return table_html(caption, ("table", "format", "version", "", "uri"), rows)


def _version(client: LakeClient, location: str, table: TableState) -> str:
    """The log version of a table's state; others may have committed before what is pending."""
    version = table.published + len(table.pending)
    tail = client.context.tails.get(location)
    exact = not table.pending or (tail is not None and tail.tip == version)
    return str(version) if exact else f"≥ {version}"


def table_names(client: LakeClient) -> TableNames:
    """The names of the lake's tables now, in the order in which they are listed."""
    head = client.head()
    if head is not None:
        client.run(load_all(head))
    listing = TableNames([] if head is None else client.run(all_shown(head)))
    client.listing = ref(listing)
    return listing


def table_count(client: LakeClient) -> int:
    """How many tables the lake has now.

    ``list(lake)`` asks for an iterator first and then, as a hint, for the length: an iterator
    that nobody has begun to use knows it, and saves a request.
    """
    begun = None if client.listing is None else client.listing()
    unused = None if begun is None else begun.unused
    return table_names(client).unused or 0 if unused is None else unused


def has_table(client: LakeClient, name: object) -> bool:
    """Whether the lake has a table of that name, in any of its spellings."""
    if not isinstance(name, str):
        return False
    try:
        location = client.location_of(name)
    except (InvalidOperation, TableNotFound):
        return False
    head = known_head(client)
    if head is None:
        return False
    client.run(load_tables(head, [location]))
    state = head.tables.get(location)
    if state is None:
        return client.run(mount_of(head, location)) is not None
    return not state.dropped


def lake_html(client: LakeClient) -> str:
    """The lake as it is now: one GET at most, and what is known already where that fails."""
    note, client = "", client.newest()
    if client.at is not None:
        return tables_html(f"lake {client.root}{place_of(client)}", client, client.at.head)
    try:
        # Somebody waits for a picture: a store that is away is said at once.
        held = client.runner.without_retries().run(glance(client.context.held))
        head = None if held is None else held.head
        note = summary(head) or ", nothing was committed yet"
    except LakeVillaError as error:
        head = known_head(client)
        note = f"{summary(head)}; not to be seen now: {error.message}"
    return tables_html(f"lake {client.root}{ref_of(client)}{note}", client, head)


def known_size(client: LakeClient, uri: str, version: int | None) -> TableSize | None:
    """How large a table is at a version, where that is at hand."""
    prefix = f"{client.root.rstrip('/')}/"
    tail = client.context.tails.get(uri.removeprefix(prefix))
    if tail is None or version is None or version not in tail.snapshots:
        return None
    return tail.snapshots[version].known_size()

"""List the objects of a lake, with their ages by the store's clock."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakevilla.errors import LakeVillaError, StoreError, VersionNotFound
from lakevilla.global_log.commits import COMMITS_PREFIX
from lakevilla.global_log.head import PAGES_PREFIX, Head, PageRef, TableState
from lakevilla.global_log.head_log import RECENT_PREFIX
from lakevilla.global_log.inbox.proposal import INBOX_PREFIX
from lakevilla.global_log.keys import KEYS_PREFIX
from lakevilla.global_log.leaves import LEAVES_PREFIX
from lakevilla.global_log.refs import BASES_PREFIX
from lakevilla.global_log.repo import claim_of, load_page, pages_before, rules_table
from lakevilla.ids import is_txn_id
from lakevilla.lake.context import Context, owner_of
from lakevilla.lake.table_log import refresh
from lakevilla.lake.tables.dropped import (
    held_back,
    is_emptied,
    is_within,
    nested_tables,
    other_lakes,
)
from lakevilla.lake.view import pending_parts
from lakevilla.markers.marker import Listed, Marker, marker_key, ticket_of
from lakevilla.markers.repo import load_markers
from lakevilla.store.base import ANY, Missing, ObjectInfo
from lakevilla.store.effects import Program, list_objects, parallel, put, some_at_once, stat
from lakevilla.store.effects import stat as object_info
from lakevilla.store.location import HOMES_PREFIX, is_external
from lakevilla.sublogs.record import TXNS_PREFIX, created_by, record_key

# -------------------- listing
#
# List all objects before HEAD advances; gc deletes only objects of this list (hazards 19, 20).


_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_COMMIT = re.compile(rf"{COMMITS_PREFIX}/({_UUID})-([0-9a-f]+)\.json")
_LEAF = re.compile(rf"{LEAVES_PREFIX}/\d{{20}}-(?:[0-9a-f]+|named)\.json")
_RECORD = re.compile(rf"{TXNS_PREFIX}/({_UUID})(?:\.json|/.*)")


_OF_THE_LAKE = (
    COMMITS_PREFIX,
    TXNS_PREFIX,
    KEYS_PREFIX,
    PAGES_PREFIX,
    LEAVES_PREFIX,
    INBOX_PREFIX,
    BASES_PREFIX,
    HOMES_PREFIX,
    RECENT_PREFIX,
)


@dataclass(slots=True)
class Listing:
    """The objects that existed before HEAD advanced.

    ``now`` is the store's time, ``sequence`` the global version of HEAD at the listing. ``written``
    has the store's times of commit objects, and ``leaves`` those of leaves and gc's marks.
    ``unknown`` has the ended branches' epochs whose tables can't be determined, with the errors.
    """

    now: float
    sequence: int
    unreadable: dict[str, LakeVillaError]
    held_back: dict[str, str] = field(default_factory=dict)
    data: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    commits: list[tuple[str, str, str]] = field(default_factory=list)
    written: dict[tuple[str, str], float] = field(default_factory=dict)
    records: list[tuple[str, str]] = field(default_factory=list)
    keys: list[ObjectInfo] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    leaves: dict[str, float] = field(default_factory=dict)
    tickets: dict[str, list[Listed]] = field(default_factory=dict)
    markers: list[tuple[str, Listed, Marker]] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    history: LakeVillaError | None = None
    has_stray_pages: bool = False
    proposals: list[str] = field(default_factory=list)
    bases: list[str] = field(default_factory=list)
    of_branches: list[str] = field(default_factory=list)
    recent: list[str] = field(default_factory=list)
    in_doubt: set[str] = field(default_factory=set)
    unknown: dict[str, LakeVillaError] = field(default_factory=dict)

    def leave_alone(self, in_doubt: set[str]) -> None:
        """Keep what a lost HEAD may have decided: transactions ``in_doubt``, and all pages.

        The lost HEAD may have moved its oldest commits to a new page (note 53).
        """
        self.in_doubt = in_doubt
        if in_doubt:
            self.pages.clear()
            self.has_stray_pages = False


def look(context: Context, head: Head, *, dry_run: bool) -> Program[Listing]:
    """List and read the objects that clients have left up to this HEAD."""
    unreadable = yield from _unreadable(context, head)
    request = None if dry_run else (yield from ask_time(context, TXNS_PREFIX))
    listed = yield from _list(context, head, unreadable, request)
    listed.markers = yield from _markers(context, listed.tickets)
    # Records are requested after markers and HEAD were read. A transaction that these name has
    # created its record before, so one without a record now has ended.
    holders = {one.txn for _, _, one in listed.markers} | {r.txn for r in head.reserved}
    listed.ended = yield from _without_record(holders)
    listed.history = yield from _history_trouble(head)
    if listed.history is not None:
        # It is not known which objects an unreadable page names, so no history is deleted.
        listed.pages.clear()
        listed.commits.clear()
    else:
        named = yield from named_pages(head)
        # A page that HEAD does not name may belong to a replacement of HEAD in flight: that will be
        # refused once HEAD has advanced, and only then is the page garbage.
        listed.has_stray_pages = any(key not in named for key in listed.pages)
    return listed


def _unreadable(context: Context, head: Head) -> Program[dict[str, LakeVillaError]]:
    """Return the tables that can't be read, with the errors; gc skips these tables."""
    errors = yield from some_at_once(_trouble(context, head, location) for location in head.tables)
    found = zip(head.tables, errors, strict=True)
    return {location: error for location, error in found if error is not None}


def _trouble(context: Context, head: Head, location: str) -> Program[LakeVillaError | None]:
    """Return why a table's log, its pending commits or a dropped table's claim can't be read."""
    state = head.tables[location]
    try:
        if state.dropped:
            yield from rules_table(location, head)
        else:
            yield from refresh(context, location)
        yield from pending_parts(context, location, state.pending)
    except StoreError:
        raise
    except LakeVillaError as error:
        return error
    return None


def _history_trouble(head: Head) -> Program[LakeVillaError | None]:
    try:
        yield from pages_before(head)
    except StoreError:
        raise
    except VersionNotFound:
        return None  # another gc has deleted the page meanwhile
    except LakeVillaError as error:
        return error
    return None


def _list(
    context: Context,
    head: Head,
    unreadable: dict[str, LakeVillaError],
    request: TimeRequest | None,
) -> Program[Listing]:
    listed = Listing(context.clock.now(), head.sequence, unreadable)
    locations = yield from _locations(context, head, listed)
    both: list[Program[Any]] = [
        parallel([list_objects(prefix) for prefix in _OF_THE_LAKE]),
        _list_tables(context, head, listed, locations),
    ]
    results, of_emptied = yield from parallel(both)
    if request is not None:
        listed.now = yield from shown_time(request, results[1])
    _add_commits(listed, results[0])
    notes = [(info.key, *note) for info in results[1] if (note := created_by(info.key))]
    # ``note_created`` writes no note for a place outside of the root, so such a note is not
    # trusted.
    notes = [note for note in notes if not (note[2] in head.tables or is_external(note[2]))]
    yield from _list_created(head, listed, notes)
    present = {(location, txn) for location, files in listed.data.items() for _, txn in files}
    held_up = {key for key, txn, location in notes if (location, txn) in present}
    for info in results[1]:
        # A note stays until its transaction has no file left in the place that it names.
        if (found := _RECORD.fullmatch(info.key)) is not None and info.key not in held_up:
            listed.records.append((info.key, found[1]))
    listed.keys = list(results[2])
    listed.pages = [info.key for info in results[3]]
    listed.leaves = {i.key: i.modified_seconds for i in results[4] if _LEAF.fullmatch(i.key)}
    listed.proposals = [info.key for info in results[5]]
    listed.bases = [info.key for info in results[6]]
    listed.of_branches = [info.key for info in results[7]]
    listed.recent = [info.key for info in results[8]]
    for location, objects in of_emptied:
        _add_files(context, head, listed, location, objects)
    return listed


def _list_tables(
    context: Context, head: Head, listed: Listing, locations: Iterable[str]
) -> Program[list[tuple[str, Sequence[ObjectInfo]]]]:
    """Add the files of tables; return those of emptied tables, which need the store's time."""

    def objects_of(location: str) -> Program[tuple[str, Sequence[ObjectInfo]] | None]:
        objects = yield from list_objects(location)
        if is_emptied(head.tables[location]):
            return location, objects
        _add_files(context, head, listed, location, objects)
        return None

    found = yield from some_at_once(objects_of(location) for location in locations)
    return [one for one in found if one is not None]


def _add_files(
    context: Context, head: Head, listed: Listing, location: str, objects: Sequence[ObjectInfo]
) -> None:
    files = []
    keys = [info.key for info in objects]
    nested = nested_tables(location, keys, head)
    youngest = math.inf
    if is_emptied(head.tables[location]):
        # The data of this table was deleted. Files that another client has just stored in its place
        # may belong to a table that has no log yet.
        youngest = listed.now - context.settings.max_age_seconds
        nested += other_lakes(location, keys)
    for info in objects:
        if is_within(info.key, nested):
            continue  # a nested table's file: only that table's log shows whether it is needed
        path = info.key.removeprefix(f"{location}/")
        owner = owner_of(path)
        # Committers by log entry can't be fenced, so only vacuum deletes their files.
        if owner is not None and owner[0] == "h" and info.modified_seconds <= youngest:
            files.append((path, owner[1]))
        number = ticket_of(path)
        if number is not None and info.key == marker_key(location, number):
            listed.tickets.setdefault(location, []).append(Listed(number, info.token))
    listed.data[location] = files


def _locations(context: Context, head: Head, listed: Listing) -> Program[list[str]]:
    """Return the locations of the readable tables in which the lake may delete objects."""
    locations = []
    for location, state in head.tables.items():
        if location in listed.unreadable:
            continue
        if state.dropped and not (yield from is_left_to(location, state, head)):
            continue
        if why := (yield from held_back(context, head, location, state.table_id)):
            listed.held_back[location] = why
        else:
            locations.append(location)
    return locations


def is_left_to(location: str, state: TableState, head: Head) -> Program[bool]:
    """Return whether this lake may delete the objects left in a dropped table's directory.

    After an ``unregister``, another lake may have claimed the table, and only that lake's HEAD
    knows its files. After a deletion of the data, there is no claim: below the root, the directory
    stays this lake's until another lake claims it, and clients that began before the drop may have
    stored files in it since.
    """
    owner = yield from claim_of(location)
    if owner is None:
        return is_emptied(state) and not is_external(location)
    return owner.names(head)


def _add_commits(listed: Listing, objects: Iterable[ObjectInfo]) -> None:
    for info in objects:
        if (found := _COMMIT.fullmatch(info.key)) is not None:
            listed.commits.append((info.key, found[1], found[2]))
            listed.written[found[1], found[2]] = info.modified_seconds


def _list_created(
    head: Head, listed: Listing, notes: Collection[tuple[str, str, str]]
) -> Program[None]:
    """List files of tables that were never added to HEAD, if their transactions have left a note.

    Other files in the same directory may be another lake's, and only that lake's HEAD decides on
    them.
    """
    makers: dict[str, set[str]] = {}
    for _, txn, location in notes:
        makers.setdefault(location, set()).add(txn)
    results = yield from parallel([list_objects(location) for location in makers])
    for (location, txns), objects in zip(makers.items(), results, strict=True):
        nested = nested_tables(location, [info.key for info in objects], head)
        paths = [
            info.key.removeprefix(f"{location}/")
            for info in objects
            if not is_within(info.key, nested)
        ]
        owned = [(path, owner[1]) for path in paths if (owner := owner_of(path)) is not None]
        listed.data[location] = [(path, txn) for path, txn in owned if txn in txns]


def _markers(
    context: Context, listed: Mapping[str, list[Listed]]
) -> Program[list[tuple[str, Listed, Marker]]]:
    """Return the tables' markers, without unreadable ones, which waiting transactions handle."""
    loaded = yield from parallel(
        [load_markers(table, some, context.known_markers()) for table, some in listed.items()]
    )
    return [
        (table, one, marker)
        for table, some in zip(listed, loaded, strict=True)
        for one, marker in some
        if isinstance(marker, Marker)
    ]


def _without_record(txns: Collection[str]) -> Program[set[str]]:
    known = sorted(txn for txn in txns if is_txn_id(txn))
    infos = yield from parallel([object_info(record_key(txn)) for txn in known])
    return {txn for txn, info in zip(known, infos, strict=True) if isinstance(info, Missing)}


def named_pages(head: Head) -> Program[set[str]]:
    """Return the pages from HEAD back to the beginning of its kept history.

    The pages of a block are left out if another gc has deleted the page that ends it meanwhile:
    that gc deletes a page only together with all older ones.
    """
    keys: set[str] = set()
    refs = list(head.pages)
    while refs:
        refs = [ref for ref in refs if ref.last_sequence > head.history_start]
        keys.update(ref.key for ref in refs)
        inner = yield from parallel([_others_of_block(ref) for ref in refs if ref.level])
        refs = [ref for found in inner for ref in found]
    return keys


def _others_of_block(end: PageRef) -> Program[tuple[PageRef, ...]]:
    try:
        return (yield from load_page(end)).older
    except VersionNotFound:
        return ()


# -------------------- store time
#
# The store's time, by which a client that deletes decides what is old.
#
# A client's clock may be ahead by days; then the objects of running transactions would look old. So
# a clean-up writes an object into a directory that it lists right afterwards, and takes that
# object's modification time as the present time: one more request for each run
# (docs/design/0054-store-time.md).


#: The client's clock is used if it differs from the store's by at most this: it has fractions of a
#: second, and no retention is so short that the difference would matter.
TOLERANCE_SECONDS = 60.0
TIME_NAME = "time.json"
_BODY = b'{"note":"its time of writing tells a clean-up the time of the store"}\n'


@dataclass(frozen=True, slots=True)
class TimeRequest:
    """A request for the store's time: an object just written, and the client's own time of the
    write.
    """

    key: str
    own_seconds: float


def ask_time(context: Context, directory: str) -> Program[TimeRequest]:
    """Write the time object of a directory; a LIST of the directory after this shows the store's
    time.

    This is safe while other clients do the same: the object's time is then a later one, but never
    ahead of the store's clock.
    """
    request = TimeRequest(f"{directory}/{TIME_NAME}", context.clock.now())
    yield from put(request.key, _BODY, ANY)
    return request


def shown_time(request: TimeRequest, listed: Iterable[ObjectInfo]) -> Program[float]:
    """Return a time by the store's clock, in seconds since the epoch, that is not in the future.

    A LIST that is not consistent may show an older time, or none: then less is deleted.

    Raises
    ------
    StoreError
        The time object was deleted meanwhile.
    """
    info: ObjectInfo | Missing | None
    info = next((one for one in listed if one.key == request.key), None)
    if info is None:
        info = yield from stat(request.key)
    if isinstance(info, Missing):
        raise StoreError(
            f"{request.key} was deleted while a clean-up read the store's time from it: nothing "
            "was deleted, run it again"
        )
    written, own = info.modified_seconds, request.own_seconds
    return own if abs(own - written) <= TOLERANCE_SECONDS else written

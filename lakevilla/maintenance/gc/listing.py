"""List the objects of a lake, with ages by the store's own clock."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakevilla.errors import LakeVillaError, StoreError, VersionNotFound
from lakevilla.global_log.commits import COMMITS_PREFIX
from lakevilla.global_log.head import PAGES_PREFIX, Head, TableState
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
from lakevilla.store.effects import Program, list_objects, parallel, put, stat
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


@dataclass(slots=True)
class Listing:
    """The objects that existed before HEAD advanced.

    ``now`` is the store's time, ``sequence`` that of the HEAD before; ``written`` has the times
    when the store got the commit objects, and ``leaves`` those of the leaves and gc's marks.
    ``unknown`` has the epochs of ended branches whose tables are not known, and why.
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
        """Keep what a HEAD that is gone may have decided: the lake continues from before any of it.

        That HEAD may have moved its oldest commits to a page of its own (note 53).
        """
        self.in_doubt = in_doubt
        if in_doubt:
            self.pages.clear()
            self.has_stray_pages = False


def look(context: Context, head: Head, *, dry_run: bool) -> Program[Listing]:
    """List and read the objects that a HEAD and its concurrent clients have left."""
    unreadable = yield from _unreadable(context, head)
    request = None if dry_run else (yield from ask_time(context, TXNS_PREFIX))
    listed = yield from _list(context, head, unreadable, request)
    listed.markers = yield from _markers(context, listed.tickets)
    # Requested after markers and HEAD were read: a transaction that is named there has created its
    # record before, so one that has no record now has ended.
    holders = {one.txn for _, _, one in listed.markers} | {r.txn for r in head.reserved}
    listed.ended = yield from _without_record(holders)
    listed.history = yield from _history_trouble(head)
    if listed.history is not None:
        # The objects that an unreadable page names are not known: all of the history stays.
        listed.pages.clear()
        listed.commits.clear()
    else:
        named = yield from named_pages(head)
        # A page that HEAD does not name may belong to a HEAD that is about to be stored: that
        # replacement is refused once HEAD has advanced, and only then the page is garbage.
        listed.has_stray_pages = any(key not in named for key in listed.pages)
    return listed


def _unreadable(context: Context, head: Head) -> Program[dict[str, LakeVillaError]]:
    """Return the tables that can't be read, and why: gc skips them and cleans the others."""
    errors = yield from parallel([_trouble(context, head, location) for location in head.tables])
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
        return None  # another gc has released it meanwhile
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
    results = yield from parallel(
        [
            list_objects(COMMITS_PREFIX),
            list_objects(TXNS_PREFIX),
            list_objects(KEYS_PREFIX),
            list_objects(PAGES_PREFIX),
            list_objects(LEAVES_PREFIX),
            list_objects(INBOX_PREFIX),
            list_objects(BASES_PREFIX),
            list_objects(HOMES_PREFIX),
            list_objects(RECENT_PREFIX),
            *[list_objects(location) for location in locations],
        ]
    )
    if request is not None:
        listed.now = yield from shown_time(request, results[1])
    _add_commits(listed, results[0])
    notes = [(info.key, *note) for info in results[1] if (note := created_by(info.key))]
    # ``note_created`` writes no note for an external place: a note that names one is not followed.
    notes = [note for note in notes if not (note[2] in head.tables or is_external(note[2]))]
    yield from _list_created(head, listed, notes)
    present = {(location, txn) for location, files in listed.data.items() for _, txn in files}
    held_up = {key for key, txn, location in notes if (location, txn) in present}
    for info in results[1]:
        # A note stays until nothing is found at the place that it names.
        if (found := _RECORD.fullmatch(info.key)) is not None and info.key not in held_up:
            listed.records.append((info.key, found[1]))
    listed.keys = list(results[2])
    listed.pages = [info.key for info in results[3]]
    listed.leaves = {i.key: i.modified_seconds for i in results[4] if _LEAF.fullmatch(i.key)}
    listed.proposals = [info.key for info in results[5]]
    listed.bases = [info.key for info in results[6]]
    listed.of_branches = [info.key for info in results[7]]
    listed.recent = [info.key for info in results[8]]
    for location, objects in zip(locations, results[9:], strict=True):
        _add_files(context, head, listed, location, objects)
    return listed


def _add_files(
    context: Context, head: Head, listed: Listing, location: str, objects: Sequence[ObjectInfo]
) -> None:
    files = []
    keys = [info.key for info in objects]
    nested = nested_tables(location, keys, head)
    youngest = math.inf
    if is_emptied(head.tables[location]):
        # What another client has just copied there may be of a table that has no log yet.
        youngest = listed.now - context.settings.max_age_seconds
        nested += other_lakes(location, keys)
    for info in objects:
        if is_within(info.key, nested):
            continue  # another table's: only its own log shows whether it is needed
        path = info.key.removeprefix(f"{location}/")
        owner = owner_of(path)
        # Files of log-entry committers can't be fenced; only VACUUM deletes them.
        if owner is not None and owner[0] == "h" and info.modified_seconds <= youngest:
            files.append((path, owner[1]))
        number = ticket_of(path)
        if number is not None and info.key == marker_key(location, number):
            listed.tickets.setdefault(location, []).append(Listed(number, info.token))
    listed.data[location] = files


def _locations(context: Context, head: Head, listed: Listing) -> Program[list[str]]:
    """Return the locations of the tables that can be read, and that the lake may clean."""
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
    """Return whether what is left at the place of a dropped table is this lake's to delete.

    A table that was released may be another lake's by now, whose HEAD alone knows its files. Where
    the data was deleted, the claim is gone too: below the root the place stays the lake's until
    another claims it, and clients that had begun before the drop may have stored files since.
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
    """List files of tables that were never added to HEAD, only those of transactions with a note.

    Files of other clients may be stored there too: for those of another lake only its HEAD decides.
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
    """Return the markers of the tables. Unreadable ones are left to the transactions that wait."""
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
    """Return the pages that a HEAD reaches within the history that it keeps.

    No HEAD names the pages any more that another gc has released since.
    """
    keys = set()
    ref = head.page
    while ref is not None and ref.last_sequence > head.history_start:
        try:
            page = yield from load_page(ref)
        except VersionNotFound:
            break
        keys.add(ref.key)
        ref = page.previous
    return keys


# -------------------- store time
#
# The store's own time, by which a client that deletes decides what is old.
#
# A client's clock may be ahead by days: then everything that other clients are working on looks
# old to it. So a clean-up writes an object into a directory that it lists right afterwards, and
# uses the time that the store has put on it: one request a run (docs/design/0054-store-time.md).


#: A clock that differs from the store's by no more is believed: it knows parts of a second, and
#: no retention is so short.
TOLERANCE_SECONDS = 60.0
TIME_NAME = "time.json"
_BODY = b'{"note":"its time of writing tells a clean-up the time of the store"}\n'


@dataclass(frozen=True, slots=True)
class TimeRequest:
    """An object that was just written, and the time of that by the client's own clock."""

    key: str
    own_seconds: float


def ask_time(context: Context, directory: str) -> Program[TimeRequest]:
    """Write the object of a directory; a LIST of it after this shows the time.

    Safe while other clients do the same: the object then has a later time, and still none ahead of
    the store's clock.
    """
    request = TimeRequest(f"{directory}/{TIME_NAME}", context.clock.now())
    yield from put(request.key, _BODY, ANY)
    return request


def shown_time(request: TimeRequest, listed: Iterable[ObjectInfo]) -> Program[float]:
    """Return seconds since the epoch by the store's clock, which had reached them when queried.

    A list that is behind has an older time, or none: then rather less is deleted by it.

    Raises
    ------
    StoreError
        The object is gone.
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

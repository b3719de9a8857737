"""Load and replace HEAD, and the objects that it refers to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from lakevilla.errors import (
    ConflictError,
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    RefNotFound,
    StoreError,
    VersionNotFound,
)
from lakevilla.global_log.commits import (
    COMMITS_PREFIX,
    CommitObject,
    commit_key,
    digest_of,
    read_commit,
)
from lakevilla.global_log.head import (
    HEAD_KEY,
    PAGES_PREFIX,
    CommitSummary,
    Head,
    NameMap,
    Page,
    PageRef,
    TableMap,
    commits_after,
    empty_head,
    find_commit,
    level_of_next,
    overfull,
    split_page,
)
from lakevilla.global_log.head_log import (
    HEADS_PREFIX,
    RECENT_PREFIX,
    head_key,
    newest_head,
    put_copy,
)
from lakevilla.global_log.keys import KEYS_PREFIX
from lakevilla.global_log.leaves import LEAVES_PREFIX, LeafMap, LeafPlan, LeafRef
from lakevilla.global_log.refs import BASES_PREFIX, RefMap
from lakevilla.ids import Ids
from lakevilla.store.base import (
    ABSENT,
    ANY,
    Found,
    Match,
    Missing,
    PutOutcome,
    Refused,
    Stored,
    Token,
    Unchanged,
    Unknown,
)
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import (
    Program,
    Put,
    delete,
    get,
    get_immutable,
    list_objects,
    parallel,
    put,
)

# -------------------- repo
#
# Reading and replacing HEAD and the objects that it refers to: programs over the store.


#: The number of commits in which a transaction's is looked for first.
_FIRST_REACH = 64
#: Number of tries to write a claim while other clients write it.
_MAX_CLAIMS = 16


class HeldHead(msgspec.Struct, frozen=True):
    """A HEAD with the version token under which it may be replaced."""

    head: Head
    token: Token


class LakeFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """``<table>/_lakevilla/lake.json``, a claim: it names the one lake whose HEAD rules the table.

    ``aliases`` are the names that HEAD has for the table, in HEAD's order, and ``catalog`` is the
    key of its pointer in a catalog: without the claim, these would be lost with HEAD. ``renamed``:
    the table's path is not its name any more. A claim without a ``lake_id`` was released, and
    counts as none (docs/design/0051-claims-let-go.md). ``table_id`` is the table that the claim was
    written for: outside of the root, files are deleted only of this table
    (docs/design/0052-deletion-stays-inside.md).
    """

    format: int
    nonce: str
    lake_id: str
    root: str
    aliases: tuple[str, ...] = ()
    catalog: str = ""
    renamed: bool = False
    table_id: str = ""

    def names(self, head: Head) -> bool:
        """Return whether the claim names the lake of ``head``, by its present or a former id."""
        return self.lake_id == head.lake_id or (
            self.root == head.root and self.lake_id in head.former
        )


def load_head(known: HeldHead | None = None) -> Program[HeldHead | None]:
    """Return the newest HEAD, or None if there is none.

    If HEAD is still ``known``, no body is read.
    """
    if known is not None and known.head.as_log:
        return (yield from _newest(known, is_far=False))
    outcome = yield from get(HEAD_KEY, None if known is None else known.token)
    match outcome:
        case Unchanged():
            assert known is not None
            return known
        case Missing():
            return None
        case Found(body=body, token=token):
            held = HeldHead(decode(HEAD_KEY, body, Head), token)
            return (yield from _newest(held, is_far=True)) if held.head.as_log else held


def glance(known: HeldHead | None = None) -> Program[HeldHead | None]:
    """Return HEAD by at most one GET. Only for reads: if HEAD is a log, a newer HEAD may exist."""
    if known is not None and known.head.as_log:
        return known
    outcome = yield from get(HEAD_KEY, None if known is None else known.token)
    match outcome:
        case Unchanged():
            return known
        case Missing():
            return None
        case Found(body=body, token=token):
            return HeldHead(decode(HEAD_KEY, body, Head), token)


def _newest(held: HeldHead, *, is_far: bool) -> Program[HeldHead]:
    newer = yield from newest_head(held.head, is_far=is_far)
    return held if newer is None else HeldHead(newer[0], newer[1].token)


def create_head(ids: Ids, root: str, *, as_log: bool = False) -> Program[HeldHead]:
    """Return the lake's HEAD; create an empty one if there is none.

    A client that loses the race reads the winner's HEAD. ``as_log``: the store does not replace
    objects under a condition, so HEAD is a log; the winner decides that for all clients.
    """
    for _ in range(8):
        head = empty_head(ids.uuid(), root, ids.nonce(), FORMAT, as_log=as_log)
        outcome = yield from put(HEAD_KEY, encode(head), ABSENT)
        if isinstance(outcome, Stored):
            return HeldHead(head, outcome.token)
        held = yield from load_head()
        if held is not None:
            return held
    raise StoreError(f"could neither create nor read {HEAD_KEY}: check the store and try again")


def replace_head(held: HeldHead, successor: Head) -> Program[PutOutcome]:
    """Replace HEAD by one conditional write, the lake's commit point.

    The leaves that the successor changes are stored before it.

    If HEAD is a log, the write creates the next number. Safe because that number is absent as long
    as ``held`` is the newest HEAD, and exists for ever once a newer HEAD exists.
    """
    assert successor.replacement == held.head.replacement + 1
    assert successor.nonce != held.head.nonce
    assert successor.as_log == held.head.as_log
    check_not_closed(held.head)
    yield from store_leaves(successor)
    if successor.as_log:
        return (yield from put(head_key(successor), encode(successor), ABSENT))
    return (yield from put(HEAD_KEY, encode(successor), Match(held.token)))


def check_not_closed(head: Head) -> None:
    """Refuse the HEAD of a branch that has ended, or that continues in another epoch.

    Raises ``RefNotFound`` or ``ConflictError``.
    """
    if head.epoch is not None and head.epoch.closed == "moved":
        raise ConflictError(
            f"branch {head.epoch.name!r} was rebased meanwhile: run the transaction again"
        )
    if head.epoch is not None and head.epoch.closed:
        raise RefNotFound(
            f"branch {head.epoch.name!r} was {head.epoch.closed}: check `refs()`; nothing is "
            "committed on it any more"
        )


def load_tables(head: Head | None, locations: Iterable[str] | None = None) -> Program[None]:
    """Fetch the leaves of HEAD that store these tables (if None, all tables), unless cached.

    Raises
    ------
    VersionNotFound
        This HEAD was replaced long ago, and gc has deleted a leaf that it needs.
    CorruptObject
        A leaf is damaged, or it is missing although the newest HEAD names it.
    """
    if head is not None:
        yield from fetch_leaves(head.tables, head.tables.missing(locations))


def load_tables_below(head: Head | None, prefix: str) -> Program[None]:
    """Do the same as ``load_tables`` for all tables whose location begins with ``prefix``."""
    if head is not None:
        yield from fetch_leaves(head.tables, head.tables.missing_below(prefix))


def load_names(head: Head | None, names: Iterable[str] | None = None) -> Program[None]:
    """Do the same as ``load_tables`` for registered names."""
    if head is not None:
        yield from fetch_leaves(head.names, head.names.missing(names))


def load_refs(head: Head | None, names: Iterable[str] | None = None) -> Program[None]:
    """Do the same as ``load_tables`` for refs."""
    if head is not None:
        yield from fetch_leaves(head.refs, head.refs.missing(names))


def load_all(head: Head | None) -> Program[None]:
    """Do the same as ``load_tables`` for all tables and names, in one round."""
    yield from parallel([load_tables(head), load_names(head)])


def fetch_sound(head: Head, tables: Iterable[str] | None = None) -> Program[list[CorruptObject]]:
    """Fetch the readable leaves of HEAD's maps; return the errors of all other leaves.

    With ``tables``, only the leaves of these tables are fetched, and all of names and refs.
    """
    damaged: list[CorruptObject] = []
    for found in (head.tables, head.names, head.refs):
        missing = found.missing(tables if found is head.tables else None)
        errors = yield from parallel([_damage(found, ref) for ref in missing])
        damaged.extend(error for error in errors if error is not None)
    return damaged


def load_sound(head: Head) -> Program[tuple[Head, list[CorruptObject]]]:
    """Return HEAD with the readable parts of its maps, and the errors of all other leaves."""
    damaged = yield from fetch_sound(head)
    if not damaged:
        return head, damaged
    sound = msgspec.structs.replace(
        head,
        tables=TableMap(head.tables.cached()),
        names=NameMap(head.names.cached()),
        refs=RefMap(head.refs.cached()),
    )
    return sound, damaged


def _damage(found: LeafMap[Any], ref: LeafRef) -> Program[CorruptObject | None]:
    try:
        yield from fetch_leaves(found, [ref])
    except CorruptObject as error:
        return error
    return None


def fetch_leaves(found: LeafMap[Any], missing: Sequence[LeafRef]) -> Program[None]:
    """Fetch leaves of a map. Raises the errors of ``load_tables``."""
    if not missing:
        return
    outcomes = yield from parallel([get_immutable(ref.key) for ref in missing])
    for ref, outcome in zip(missing, outcomes, strict=True):
        if not isinstance(outcome, Found):
            raise (yield from _missing_leaf(ref))
        found.take(ref, outcome.body)


def _missing_leaf(ref: LeafRef) -> Program[LakeVillaError]:
    held = yield from load_head()
    if held is not None and any(ref in one.refs for one in maps_of(held.head)):
        return CorruptObject(
            f"{ref.key} is missing although HEAD names it: restore it from a copy", key=ref.key
        )
    return VersionNotFound(
        f"{ref.key} was removed: the HEAD that names it was replaced long ago; "
        "read the lake as it is now, or run the transaction again"
    )


def store_leaves(head: Head) -> Program[None]:
    """Store the leaves of a HEAD that is about to be stored, and note in it where they are stored.

    The leaves are stored before HEAD, so that every client that reads HEAD finds them. The writes
    need no condition: a leaf's name has the hash of its content, so to write it twice changes
    nothing. If the HEAD then loses the race, no HEAD ever names its leaves, and gc deletes them. If
    the very same HEAD is sent again, no leaf is stored again.
    """
    yield from store_leaves_of(maps_of(head), head.replacement, head.home)


def store_leaves_of(maps: Sequence[LeafMap[Any]], made: int, epoch: str = "") -> Program[None]:
    """Store the changed leaves of maps, for the replacement of HEAD with the number ``made``."""
    plans: list[tuple[LeafMap[Any], LeafPlan[Any]]] = []
    for found in maps:
        yield from fetch_leaves(found, found.unread())
        plan = found.planned(made, epoch)
        if plan is not None:
            plans.append((found, plan))
    bodies = {key: body for _, plan in plans for key, body in plan.bodies.items()}
    yield from parallel([Put(key, body, ANY) for key, body in bodies.items()])
    for found, plan in plans:
        found.settle(plan)


def maps_of(head: Head) -> tuple[LeafMap[Any], ...]:
    """Return all maps of a HEAD that may be stored in leaves."""
    return (head.tables, head.names, head.refs, head.copies)


def head_found(outcome: PutOutcome) -> HeldHead | None:
    """Return the HEAD that the store returned, or that was read, when a replacement was refused.

    It is as new as a HEAD that is read now: it was read after this client's write was refused.
    If HEAD is a log this is not so: the refused create returns the oldest HEAD that this client
    does not know, so a client that continued from it would stay as far behind as it is. Then the
    result is None.
    """
    if not isinstance(outcome, Refused) or outcome.current is None:
        return None
    head = decode(HEAD_KEY, outcome.current.body, Head)
    return None if head.as_log else HeldHead(head, outcome.current.token)


def make_room(head: Head, ids: Ids, *, is_stored: bool = True) -> Program[PageRef | None]:
    """Move the oldest commits of ``head`` to a page if it is full.

    Returns the page that the successor must name, None if there is room. The page is immutable and
    named by its hash; if the replacement of HEAD loses the race, no HEAD names the page, and gc
    deletes it. A copy of ``head`` is stored with the page, if ``head`` ``is_stored`` itself and is
    not one of the intermediate HEADs of a group.
    """
    if not overfull(head):
        return None
    page = split_page(head, ids.nonce(), FORMAT)
    first, last = page.commits[0], page.commits[-1]
    body = encode(page)
    ref = PageRef(
        digest_of(body),
        first.sequence,
        last.sequence,
        first.timestamp_ms,
        last.timestamp_ms,
        level_of_next(head.pages),
    )
    stores: list[Program[PutOutcome]] = [put(ref.key, body, ABSENT)]
    if is_stored and not (head.as_log or head.home):
        stores.append(put_copy(head))
    outcome, *_ = yield from parallel(stores)
    if isinstance(outcome, Unknown):
        raise StoreError(f"could not store {ref.key} ({outcome.reason}): try again")
    return ref


def load_page(ref: PageRef) -> Program[Page]:
    """Return a page that HEAD names.

    Raises
    ------
    VersionNotFound
        gc has released the page since that HEAD was read.
    CorruptObject
        The page is damaged, or it is missing although the newest HEAD keeps it.
    """
    outcome = yield from get_immutable(ref.key)
    if not isinstance(outcome, Found):
        if (yield from is_forgotten(ref.last_sequence)):
            raise VersionNotFound(
                f"{ref.key} was removed: the lake's history up to commit {ref.last_sequence} is "
                "not kept any more; try again"
            )
        raise CorruptObject(
            f"{ref.key} is missing: the lake's history up to commit {ref.last_sequence} is lost; "
            "run `lakevilla doctor`",
            key=ref.key,
        )
    page = decode(ref.key, outcome.body, Page)
    sequences = [commit.sequence for commit in page.commits]
    if ref.hash != digest_of(outcome.body) or sequences != list(
        range(ref.first_sequence, ref.last_sequence + 1)
    ):
        raise CorruptObject(
            f"{ref.key} is not the page of commits {ref.first_sequence} to {ref.last_sequence} "
            "that HEAD names: restore it from a copy, or run `lakevilla doctor`",
            key=ref.key,
        )
    return page


def is_forgotten(sequence: int) -> Program[bool]:
    """Return whether the newest HEAD does not keep a commit any more, because of gc.

    If so, objects of the commit that an older HEAD names may be missing without an error.
    """
    held = yield from load_head()
    return held is not None and sequence <= held.head.history_start


def load_pages(refs: Sequence[PageRef], first: int, last: int) -> Program[list[Page]]:
    """Return the pages with the commits from ``first`` to ``last``, oldest first.

    ``refs`` are those of a HEAD. The pages of all blocks are requested at once: a page in a block
    costs one round more for each level of the block.

    Raises
    ------
    VersionNotFound
        gc has released some of them since HEAD was read.
    """
    found: dict[PageRef, Page] = {}
    wanted = _overlapping(refs, first, last)
    while wanted:
        pages = yield from parallel([load_page(ref) for ref in wanted])
        found.update(zip(wanted, pages, strict=True))
        wanted = [ref for page in pages for ref in _overlapping(page.older, first, last)]
    in_order = sorted(found, key=lambda ref: ref.first_sequence)
    return [
        found[ref] for ref in in_order if ref.first_sequence <= last and ref.last_sequence >= first
    ]


def _overlapping(refs: Sequence[PageRef], first: int, last: int) -> list[PageRef]:
    """Return the refs of pages, or ends of blocks, with commits from ``first`` to ``last``.

    Each block begins where the one before it ends.
    """
    starts = [0, *(ref.last_sequence + 1 for ref in refs)]
    return [
        ref
        for ref, start in zip(refs, starts, strict=False)
        if ref.last_sequence >= first and max(start, 0 if ref.level else ref.first_sequence) <= last
    ]


def pages_before(head: Head) -> Program[list[Page]]:
    """Return all pages that are still kept, newest first.

    Raises
    ------
    VersionNotFound
        gc has released some of them since HEAD was read.
    """
    # The history begins after ``history_start``: gc deletes pages that end there.
    pages = yield from load_pages(head.pages, head.history_start + 1, head.sequence)
    return pages[::-1]


def commits_since(head: Head, sequence: int) -> Program[tuple[CommitSummary, ...] | None]:
    """Return all commits after ``sequence``, from HEAD and as many pages as needed.

    None if some of them are no longer kept, so that nothing can be inferred about them.
    """
    recent = commits_after(head, sequence)
    if recent is not None:
        return recent
    if sequence < head.history_start:
        return None
    try:
        pages = yield from load_pages(head.pages, sequence + 1, head.sequence)
    except VersionNotFound:
        return None
    found = (*(commit for page in pages for commit in page.commits), *head.commits)
    if found and found[0].sequence > sequence + 1:
        return None
    return tuple(commit for commit in found if commit.sequence > sequence)


def commits_until(head: Head, sequence: int, txn: str) -> Program[tuple[CommitSummary, ...] | None]:
    """Return commits after ``sequence``, and among them the one of ``txn``, if there is one.

    A transaction mostly commits soon after the version that it began with. So the pages are read
    from that version on, more in each round, and only until one has the commit: the number of
    pages does not follow what was committed later. None as for ``commits_since``.
    """
    recent = commits_after(head, sequence)
    if recent is not None:
        return recent
    if sequence < head.history_start:
        return None
    if find_commit(head.commits, txn) is not None:
        return head.commits
    found: list[CommitSummary] = []
    newest = (head.commits[0].sequence if head.commits else head.sequence + 1) - 1
    reach = _FIRST_REACH
    while sequence < newest and find_commit(found, txn) is None:
        try:
            pages = yield from load_pages(head.pages, sequence + 1, min(newest, sequence + reach))
        except VersionNotFound:
            return None
        if not pages or pages[0].commits[0].sequence > sequence + 1:
            return None
        found += [one for page in pages for one in page.commits if one.sequence > sequence]
        sequence, reach = found[-1].sequence, reach * 8
    return tuple(found) if find_commit(found, txn) else (*found, *head.commits)


def load_commit(txn: str, digest: str, epoch: str = "") -> Program[CommitObject]:
    """Return a commit object that HEAD names; it must exist, as it was stored before HEAD."""
    commit, _ = yield from load_sized_commit(txn, digest, epoch)
    return commit


def load_sized_commit(txn: str, digest: str, epoch: str = "") -> Program[tuple[CommitObject, int]]:
    """Return a commit object that HEAD names, with its size in the store in bytes."""
    key = commit_key(txn, digest, epoch)
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        raise CorruptObject(
            f"{key} is missing although HEAD names it: restore it from a copy; if it is lost, "
            "`lakevilla recover` cancels its changes that are not published",
            key=key,
        )
    return read_commit(key, outcome.body), len(outcome.body)


def lake_key(location: str) -> str:
    """Return the key of the object in which a table names the lake that rules it."""
    return f"{location}/_lakevilla/lake.json"


def claim_table(
    location: str,
    head: Head,
    ids: Ids,
    table_id: str,
    *,
    aliases: tuple[str, ...] = (),
    catalog: str = "",
) -> Program[Token | None]:
    """Write into ``lake.json`` that this lake rules the table; refuse a table of another lake.

    If the claim names this lake already, it is written again for the present table, with a new
    nonce: a client that has begun to release the claim then finds another token than it has read,
    and leaves the claim. Returns the token of a claim that was made where there was none.
    """
    key = lake_key(location)
    nonce = ids.nonce()
    ours = LakeFile(FORMAT, nonce, head.lake_id, head.root, aliases, catalog, table_id=table_id)
    outcome = yield from put(key, encode(ours), ABSENT)
    for _ in range(_MAX_CLAIMS):
        match outcome:
            case Stored(token=token):
                return token
            case Unknown(reason=reason):
                # It does no harm if the claim is stored later: it names the right lake.
                raise StoreError(
                    f"could not settle whether {key} was stored ({reason}), so nothing was "
                    "committed: try again",
                    table=location,
                )
        found = yield from get(key)
        if not isinstance(found, Found):
            outcome = yield from put(key, encode(ours), ABSENT)
            continue
        owner = decode(key, found.body, LakeFile)
        if owner.names(head):
            again = msgspec.structs.replace(owner, table_id=table_id)
            yield from _rewritten(key, head, ids, again, found.token)
            return None
        if owner.lake_id:
            yield from check_lake(location, head, head.root)
        outcome = yield from put(key, encode(ours), Match(found.token))
    raise StoreError(
        f"{key} was written by other clients again and again: try again", table=location
    )


def _rewritten(key: str, head: Head, ids: Ids, owner: LakeFile, token: Token) -> Program[None]:
    """Write a claim of this lake again.

    If the store refuses that, another client of the lake has written the claim since it was read.
    """
    if not head.as_log:
        again = msgspec.structs.replace(owner, nonce=ids.nonce())
        if isinstance((yield from put(key, encode(again), Match(token))), Unknown):
            raise StoreError(f"could not settle whether {key} was stored: try again")


def release_claim(location: str, token: Token, head: Head, ids: Ids) -> Program[bool]:
    """Write into ``lake.json`` that no lake rules the table, if its token is still ``token``.

    The claim is not deleted: hardly any store deletes under a condition, and a deletion that is
    carried out late could delete another lake's claim. If HEAD is a log, the store can't replace
    the claim either, so it is deleted.
    """
    if head.as_log:
        yield from delete(lake_key(location))
        return True
    nobodys = LakeFile(FORMAT, ids.nonce(), "", "")
    outcome = yield from put(lake_key(location), encode(nobodys), Match(token))
    if isinstance(outcome, Unknown):
        raise StoreError(
            f"table {location} is out of the lake, and could not be released to another one "
            f"({outcome.reason}): `unregister` it again",
            table=location,
        )
    return isinstance(outcome, Stored)


def check_lake(location: str, head: Head | None, root: str) -> Program[None]:
    """Refuse a table that belongs to another lake than that at ``root``.

    Raises
    ------
    InvalidOperation
        The table belongs to the lake at another root.
    CorruptObject
        The table belongs to a lake with another id at this very root: that lake's HEAD was lost.
    ConflictError
        ``head`` is None, and another client has made the lake since.
    """
    owner = yield from claim_of(location)
    if owner is None or (head is not None and owner.names(head)):
        return
    if owner.root == root:
        made = (yield from load_head()) if head is None else None
        if made is not None and owner.names(made.head):
            raise ConflictError(
                f"table {location} has entered the lake at {root}, which another client has made "
                "meanwhile: try again",
                table=location,
            )
        raise head_lost(
            f"table {location} belongs to the lake at {owner.root} with the id {owner.lake_id}, "
            + ("and there is none" if head is None else f"and the lake here is {head.lake_id}")
            + f" (if the table alone was brought here, delete {lake_key(location)}, and "
            "`register` it)",
            table=location,
        )
    raise InvalidOperation(
        f"table {location} belongs to the lake at {owner.root} (id {owner.lake_id}): connect "
        "there, or release it with `unregister` there first",
        table=location,
    )


def claim_of(location: str) -> Program[LakeFile | None]:
    """Return the content of ``lake.json``; None if it is absent, or the table was released."""
    held = yield from held_claim(location)
    return None if held is None or not held[0].lake_id else held[0]


def held_claim(location: str) -> Program[tuple[LakeFile, Token] | None]:
    """Return the content of ``lake.json``, with the token under which it may be replaced."""
    key = lake_key(location)
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        return None
    return decode(key, outcome.body, LakeFile), outcome.token


def rules_table(location: str, head: Head) -> Program[bool]:
    """Return whether ``lake.json`` names this lake."""
    owner = yield from claim_of(location)
    return owner is not None and owner.names(head)


# -------------------- remains
#
# The objects that a lake leaves behind when its HEAD is lost (docs/design/0021-head-lost.md).
#
# HEAD is created before all other objects of a lake, and no client ever deletes it. So if a client
# lists such objects and then finds no HEAD, the lake has lost its HEAD, and is not a new lake.


#: The directory at a lake's root for all objects of the lake itself.
HOME = "_lakevilla"
#: Directories of objects that can exist only because a HEAD existed.
PREFIXES = (
    COMMITS_PREFIX,
    PAGES_PREFIX,
    LEAVES_PREFIX,
    HEADS_PREFIX,
    KEYS_PREFIX,
    BASES_PREFIX,
    RECENT_PREFIX,
)
_KINDS = tuple(f"{prefix}/" for prefix in PREFIXES)

#: The remedy for a lost HEAD, for error messages.
REBUILD = "restore the newest copy, or rebuild it with `lakevilla recover ROOT --rebuild-head`"


def is_remains(key: str) -> bool:
    """Return whether an object can exist only because a HEAD existed."""
    return key.startswith(_KINDS)


def find_remains() -> Program[list[str]]:
    """Return, by one LIST, the keys of objects at this root that only a lake's HEAD explains."""
    listed = yield from list_objects(HOME)
    return [info.key for info in listed if is_remains(info.key)]


def head_lost(evidence: str, *, table: str | None = None) -> CorruptObject:
    """Return the error for a client that finds a lake without its HEAD."""
    return CorruptObject(f"{HEAD_KEY} is lost: {evidence}; {REBUILD}", key=HEAD_KEY, table=table)

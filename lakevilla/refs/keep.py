"""Keeping a tag from the clean-up of other clients (docs/design/0037-upkeep.md).

What of a table's state the table itself has removed since is copied by the store into a directory
that the tag owns, and the state is stored apart from the table's log. Files that the table still
has stay where they are: nobody deletes those.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
from blake3 import blake3

from lakevilla.errors import (
    InvalidOperation,
    LakeVillaError,
    RefNotFound,
    StoreError,
    VersionNotFound,
)
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.delta.deletion_vectors import vector_key
from lakevilla.formats.files import (
    DataFile,
    DeleteFile,
    DeletionVector,
    data_files,
    file_key,
    files_from_structs,
)
from lakevilla.global_log.bases import (
    Base,
    KeptTable,
    load_base,
    load_base_tables,
    seal_base,
    store_base,
)
from lakevilla.global_log.head import successor, with_refs
from lakevilla.global_log.refs import RefEntry, life_of
from lakevilla.global_log.repo import HeldHead, load_refs
from lakevilla.ids import uuid7
from lakevilla.lake.context import Context
from lakevilla.lake.file_names import branch_directory, branch_of, file_path
from lakevilla.lake.refs.frozen import frozen_view
from lakevilla.lake.refs.kept_apart import kept_object, store_kept
from lakevilla.lake.refs.states import not_found
from lakevilla.lake.table_log import open_tail, refresh
from lakevilla.lake.tail import Tail
from lakevilla.refs.entries import find_ref, replace
from lakevilla.results import Finding, Report
from lakevilla.store.base import Missing, Stored
from lakevilla.store.effects import Program, copy, list_objects, parallel

_MAX_RACES = 200
#: Copies that are asked for in one round.
_AT_ONCE = 64
#: How Delta ends the prefix of a vector's file.
_VECTOR_NAME = 20


def keep(context: Context, name: str) -> Program[Report]:
    """See to it that a tag can be read whatever other clients clean up from now on.

    Of what its tables remove later nothing is known here: it is to be called again.

    Raises
    ------
    RefNotFound
    InvalidOperation
        It is a branch.
    """
    _, first = yield from find_ref(context, name)
    if first.kind == "clone":
        raise InvalidOperation(
            f"keep: {name!r} is a clone, and tags alone are kept from the clean-up of others yet: "
            "tag the lake, which shows its tables, and keep that"
        )
    if first.kind == "branch":
        raise InvalidOperation(
            f"keep: {name!r} is a branch, and tags alone are kept from the clean-up of others: tag "
            "the state that is to stay, or rebase the branch before the tables' retention is over"
        )
    entry = yield from _with_life(context, name, first)
    for _ in range(_MAX_RACES):
        base = yield from load_base(entry.base)
        yield from load_base_tables(base)
        kept, findings = yield from _kept_tables(context, base, entry)
        if kept == base.kept:
            return Report(not _are_lost(findings), tuple(findings))
        new = yield from _stored(context, name, entry, msgspec.structs.replace(base, kept=kept))
        if new is None:
            return Report(not _are_lost(findings), tuple(findings))
        entry = new  # another has kept it meanwhile: what is left is little
    raise StoreError(f"keep: tag {name!r} was changed by others {_MAX_RACES} times in a row")


def _are_lost(findings: list[Finding]) -> bool:
    return any(finding.severity != "note" for finding in findings)


def unsafe_objects(
    context: Context, location: str, snapshot: TableSnapshot
) -> Program[dict[str, int]]:
    """What a state needs and the table has not any more: keys of objects, with their sizes.

    Told from the log as it is known here, as those who clean up tell it. What lies in a directory
    of branches they leave alone.
    """
    return (yield from _beyond((yield from open_tail(context, location)), snapshot))


def _beyond(tail: Tail, snapshot: TableSnapshot) -> Program[dict[str, int]]:
    """As ``unsafe_objects``, by a log that was looked at."""
    location = tail.location
    live: set[str] = set()
    if tail.tip >= 0:
        live = set(_objects(location, data_files((yield from tail.snapshot.files()))))
    needed = _objects(location, data_files((yield from snapshot.files())))
    return {
        key: size
        for key, size in needed.items()
        if key not in live and _is_below(location, key) and not _is_owned(location, key)
    }


def _kept_tables(
    context: Context, base: Base, entry: RefEntry
) -> Program[tuple[dict[str, KeptTable], list[Finding]]]:
    """Each table that has to be kept apart, and what there is to tell."""
    kept = dict(base.kept)
    findings: list[Finding] = []
    for location, state in sorted(base.tables.items()):
        if state.dropped:
            continue
        try:
            found = yield from _kept_table(context, base, entry, location)
        except StoreError:
            raise
        except LakeVillaError as error:
            message = f"table {location} can't be kept: {error.message}"
            findings.append(Finding("warning", "ref_lost", message, table=location))
            continue
        if found is not None:
            kept[location], copied = found
            message = f"table {location} is kept apart: {copied} files were copied"
            findings.append(Finding("note", "kept", message, table=location))
    return kept, findings


def _kept_table(
    context: Context, base: Base, entry: RefEntry, location: str
) -> Program[tuple[KeptTable, int] | None]:
    """One table, if it has to be kept apart, or has lost more files since it was."""
    view = yield from frozen_view(context, base, location)
    tail = yield from refresh(context, location)
    unsafe = yield from _beyond(tail, view.snapshot)
    if not unsafe:
        state = base.tables[location]
        has_moved_on = bool(state.pending) or tail.tip != state.published
        if location in base.kept or not has_moved_on:
            return None
    files = data_files((yield from view.snapshot.files()))
    _refuse_by_position(location, files, unsafe)
    moved_to = _Moved(location, entry, unsafe)
    files = [moved_to.file(file) for file in files]
    copied = yield from _copy(context, moved_to)
    table: pa.Table = files_from_structs(files)
    digest, body = kept_object(view.snapshot, table)
    kept = KeptTable(entry.life, digest)
    if not (yield from store_kept(kept, body)):
        raise StoreError(f"could not store {kept.key}: keep it again")
    return kept, copied


def _refuse_by_position(location: str, files: list[DataFile], unsafe: dict[str, int]) -> None:
    """An Iceberg file of positions names data files by their paths: a copy would not be meant."""
    for file in files:
        by_path = any(one.kind == "position" for one in file.deletes)
        if by_path and file_key(location, file.path) in unsafe:
            raise InvalidOperation(
                f"file {file.path} has rows deleted by position, which names it by its path: "
                "optimize the table before you tag it",
                table=location,
            )


@dataclass
class _Moved:
    """Where the objects of a state lie from now on: copies of what is ``unsafe``.

    Their names tell the source, so who begins anew finds what was copied before.
    """

    location: str
    entry: RefEntry
    unsafe: dict[str, int]
    copies: dict[str, str] = field(default_factory=dict)

    def file(self, file: DataFile) -> DataFile:
        key = file_key(self.location, file.path)
        if key in self.unsafe:
            file = msgspec.structs.replace(file, path=self._copy(key), raw_path=None)
        if file.deletion_vector is not None:
            vector = self._vector(file.deletion_vector)
            file = msgspec.structs.replace(file, deletion_vector=vector)
        if file.deletes:
            deletes = tuple(self._deletes(one) for one in file.deletes)
            file = msgspec.structs.replace(file, deletes=deletes)
        return file

    def _copy(self, key: str) -> str:
        path = f"{self._directory}/{self._name(key)}"
        self.copies[key] = f"{self.location}/{path}"
        return path

    @property
    def _directory(self) -> str:
        return branch_directory(self.location, self.entry.life)[len(self.location) + 1 :]

    def _name(self, key: str) -> str:
        """As whoever wrote on a branch would call it: gc knows it by that once the tag has gone."""
        digest = blake3(key.encode()).digest(length=24)
        txn = uuid7(max(self.entry.created_ms, 0), int.from_bytes(digest[:10]) % 2**74)
        own = file_path("", txn, True, digest[16:].hex())
        return own if key.endswith(".parquet") else f"{own[:-8]}.{key.rpartition('.')[2]}"

    def _vector(self, vector: DeletionVector) -> DeletionVector:
        if vector.storage_type != "u":
            return vector
        key = vector_key(self.location, vector)
        if key not in self.unsafe:
            return vector
        name = key.rpartition("/")[2]
        self.copies[key] = f"{self.location}/{self._directory}/{name}"
        tail = vector.path_or_inline[-_VECTOR_NAME:]
        return msgspec.structs.replace(vector, path_or_inline=f"{self._directory}{tail}")

    def _deletes(self, file: DeleteFile) -> DeleteFile:
        key = file_key(self.location, file.path)
        if key not in self.unsafe:
            return file
        return msgspec.structs.replace(file, path=self._copy(key))


def _copy(context: Context, moved: _Moved) -> Program[int]:
    """Have the store copy what is not there yet. Raises ``VersionNotFound``."""
    if not moved.copies:
        return 0
    listed = yield from list_objects(branch_directory(moved.location, moved.entry.life))
    there = {info.key for info in listed}
    wanted = [(source, key) for source, key in moved.copies.items() if key not in there]
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        outcomes: list[Stored | Missing] = yield from parallel(
            [copy(source, key) for source, key in some]
        )
        for (source, _), outcome in zip(some, outcomes, strict=True):
            if isinstance(outcome, Missing):
                raise VersionNotFound(f"{source} was removed", table=moved.location)
    return len(wanted)


def _objects(location: str, files: list[DataFile]) -> dict[str, int]:
    """The keys of all objects that files are made of."""
    found: dict[str, int] = {}
    for file in files:
        found[file_key(location, file.path)] = file.size
        vector = file.deletion_vector
        if vector is not None and vector.storage_type != "i":
            found[vector_key(location, vector)] = vector.size_in_bytes
        found.update({file_key(location, one.path): one.size for one in file.deletes})
    return found


def _is_below(location: str, key: str) -> bool:
    return key.startswith(f"{location}/")


def _is_owned(location: str, key: str) -> bool:
    return branch_of(key.removeprefix(f"{location}/")) is not None


def _with_life(context: Context, name: str, first: RefEntry) -> Program[RefEntry]:
    """The entry with a directory of its own: before anything is stored there, HEAD says whose.

    Were it stored first, gc might take it for what a dead client has left.
    """

    def owner(entry: RefEntry, made: int) -> RefEntry:
        life = life_of(made, context.ids.nonce())
        return msgspec.structs.replace(entry, lives=(life,))

    for _ in range(_MAX_RACES):
        held, entry = yield from _find_again(context, name, first)
        if entry.lives:
            return entry
        following = successor(held.head, nonce=context.ids.nonce(), now_ms=context.now_ms())
        new = owner(entry, following.replacement)
        if (yield from replace(context, held, with_refs(following, {name: new}))):
            return new
    raise StoreError(f"HEAD was replaced by others {_MAX_RACES} times in a row: try again")


def _find_again(context: Context, name: str, first: RefEntry) -> Program[tuple[HeldHead, RefEntry]]:
    """The very ref that was met first, as it is now. Raises ``RefNotFound``."""
    held = yield from context.head()
    context.refuse_foreign_root()
    head = None if held is None else held.head
    yield from load_refs(head, [name])
    entry = None if head is None else head.refs.get(name)
    if held is None or entry is None:
        raise (yield from not_found(head, name))
    if entry.id != first.id:
        raise RefNotFound(f"{first.kind} {name!r} was deleted, and another one made meanwhile")
    return held, entry


def _stored(context: Context, name: str, known: RefEntry, base: Base) -> Program[RefEntry | None]:
    """Have HEAD name the new base in the place of the one that it was made from.

    None once it does; the entry that is there if another has changed the base meanwhile.
    """
    tried: set[str] = set()
    for _ in range(_MAX_RACES):
        held, entry = yield from _find_again(context, name, known)
        if entry.base.hash in tried:
            return None  # an answer was lost
        if entry.base != known.base:
            return entry
        following = successor(held.head, nonce=context.ids.nonce(), now_ms=context.now_ms())
        ref, body = seal_base(base, following.replacement)
        yield from store_base(ref, body)
        tried.add(ref.hash)
        new = msgspec.structs.replace(entry, base=ref)
        if (yield from replace(context, held, with_refs(following, {name: new}))):
            return None
    raise StoreError(f"HEAD was replaced by others {_MAX_RACES} times in a row: try again")

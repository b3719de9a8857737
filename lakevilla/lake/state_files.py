"""Metadata files of states that an Iceberg table's log does not have, as on a branch.

Such a file is the version that publishing the commits above the log would make. What is in it
follows from the state alone, so clients that make it at once make the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from blake3 import blake3

from lakevilla.errors import StoreError
from lakevilla.formats.base import ClientUpdates, CommitInfo
from lakevilla.formats.iceberg.commit import snapshot_id_of
from lakevilla.formats.iceberg.metadata.definition import state_key
from lakevilla.formats.iceberg.metadata.file import Metadata, decode_metadata
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.global_log.commits import CommitObject
from lakevilla.ids import started_at
from lakevilla.lake.context import Context, branch_directory
from lakevilla.lake.row_changes import compose
from lakevilla.lake.state_digest import state_digest
from lakevilla.lake.view import View
from lakevilla.store.base import ANY, Found, Stored
from lakevilla.store.effects import Program, get, put
from lakevilla.sublogs.operations import Given

#: The number of times that a state is made again within the retention of its table.
_PERIODS = 4
#: The base of updates that fit no version: only their snapshot's id counts.
_NO_VERSION = -2


def given_snapshot(commit: CommitObject, location: str) -> int | None:
    """Return the id of the snapshot that an Iceberg client has given a table with a commit."""
    operations = [one for one in commit.operations if isinstance(one, Given)]
    ids = [one.given.snapshot for one in operations if one.table == location]
    return next((number for number in ids if number is not None), None)


def state_snapshot(
    view: View, commits: Sequence[CommitObject], epoch: str, above: int | None = None
) -> int | None:
    """Return the id of a state's current snapshot, or of that with its first commits alone.

    ``commits`` are those above the log. It is the id that the last of them was given by its client.
    """
    base, found = view.base, commits[:above]
    assert isinstance(base, IcebergSnapshot)
    change = compose([one.tables[view.location].change for one in found])
    if not (change.adds or change.removes):
        return base.snapshot_id
    given = given_snapshot(found[-1], view.location)
    return snapshot_id_of(state_digest(view, epoch, above)) if given is None else given


def state_file(context: Context, view: View) -> Program[Metadata]:
    """Return the metadata of an Iceberg table's state; store it, if it is in no file.

    The file lies in the table's own directory, where vacuum deletes it once it is older than the
    table's retention. Its name changes four times in that time: a client that was given it has
    three quarters of the retention to read it. On a branch it tells clients the directory of the
    branch's files.

    Raises
    ------
    StoreError
        The file could not be stored.
    """
    base, state, epoch = view.base, view.snapshot, context.epoch
    assert isinstance(base, IcebergSnapshot)
    assert isinstance(state, IcebergSnapshot)
    before = base.document
    if before is not None and not view.placement.overlay and not epoch:
        return before
    formats = context.formats.of(base)
    period = int(context.clock.now() / formats.file_retention_seconds(base) * _PERIODS)
    name = f"{state_digest(view, epoch)} {period}"
    digest = blake3(name.encode()).hexdigest(length=16)
    key = state_key(view.location, digest)
    found = yield from get(key)
    if isinstance(found, Found):
        return decode_metadata(key, base.table, found.body)
    made = before
    if view.placement.overlay:
        commits = yield from context.commit_objects(view.placement.overlay)
        number = state_snapshot(view, commits, epoch)
        given = ClientUpdates(_NO_VERSION, snapshot=number)
        info = CommitInfo(operation="STATE", nonce=digest, given=given)
        # The time is a part of the state, too: two clients write the same bytes.
        last = started_at(commits[0].txn) * 1000 if before is None else before.last_updated_ms
        change = compose([part.change for part in view.parts])
        attempt = yield from formats.prepare(base, change, info, int(last) + 1)
        made = decode_metadata(key, base.table, attempt.body)
    assert made is not None, "a table without commits above its log has a metadata file"
    document = Metadata(key, base.table, made.parts)
    if epoch:
        directory = branch_directory("", epoch).removeprefix("/")
        where = state.definition.place.spelled(directory)
        document = document.replaced({"location": where})
    if not isinstance((yield from put(key, document.encode(), ANY)), Stored):
        raise StoreError(f"table {base.table}: the metadata of its state could not be stored")
    return document

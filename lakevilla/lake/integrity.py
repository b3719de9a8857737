"""The tags of an Iceberg table's files, which are in commit objects, as manifests have none.

The commit object that has added a file has the hash of the file's bytes. The commit object of the
newest refresh has hashes of rows, for the files that it made and for those that it kept
(docs/design/0038-reuse.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa

from lakevilla.formats.base import FormatName
from lakevilla.formats.files import FILES_SCHEMA, HASH_TAG, DataFile, hashes
from lakevilla.global_log.commits import CommitObject, commit_key, read_commit
from lakevilla.global_log.head import CommitRef, CommitSummary, Head
from lakevilla.global_log.repo import commits_since, load_tables
from lakevilla.lake.context import Context, branch_of, owner_of
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, parallel
from lakevilla.sublogs.operations import Refresh

#: The number of commit objects that are requested in one round.
_AT_ONCE = 64


def with_hashes(
    context: Context, location: str, format: FormatName, files: pa.Table
) -> Program[pa.Table]:
    """Return ``files`` with the hashes of their bytes in their tags, if commit objects have them.

    A file's name contains the id of the transaction whose commit object has its hash. The commit
    object of a branch's merge has the hashes of the files that it added from the branch, too.
    """
    if format == "delta":
        return files
    known = hashes(files)
    paths: list[str] = files["path"].to_pylist()
    wanted = {path for path, content in zip(paths, known, strict=True) if content is None}
    writers = {owner[1] for path in wanted if (owner := owner_of(path)) is not None}
    held = context.held
    if held is None or not writers:
        return files
    head = held.head
    commits = (yield from commits_since(head, head.history_start)) or head.commits
    touching = [one for one in reversed(commits) if one.hash and location in one.tables]
    own = [one for one in touching if one.txn in writers]
    found = yield from _added(context, location, own)
    merged = {path for path in wanted - found.keys() if branch_of(path) is not None}
    rest = [one for one in touching if one.txn not in writers]
    for first in range(0, len(rest), _AT_ONCE):
        if merged <= found.keys():
            break
        found |= yield from _added(context, location, rest[first : first + _AT_ONCE])
    tags = [
        None if (of := content or found.get(path)) is None else [(HASH_TAG, of)]
        for path, content in zip(paths, known, strict=True)
    ]
    index = FILES_SCHEMA.get_field_index("tags")
    field = FILES_SCHEMA.field(index)
    return files.set_column(index, field, pa.array(tags, field.type))


def with_tags(
    context: Context, head: Head | None, location: str, files: Sequence[DataFile]
) -> Program[list[DataFile]]:
    """Return the files with their tags from the newest refresh, by one GET.

    gc does not delete the refresh's commit object as long as HEAD names it.
    """
    if head is None or not files:
        return list(files)
    yield from load_tables(head, [location])
    state = head.tables.get(location)
    named = None if state is None else state.refreshed
    found = None if named is None else (yield from _object(context, named))
    operations = () if found is None else found.operations
    refreshes = [one for one in operations if isinstance(one, Refresh) and one.table == location]
    if not refreshes:
        return list(files)
    tags = {file.ref: file.tags for file in (*refreshes[-1].files, *refreshes[-1].kept)}
    return [msgspec.structs.replace(f, tags=f.tags or tags.get(f.ref)) for f in files]


def _added(
    context: Context, location: str, commits: Sequence[CommitSummary]
) -> Program[dict[str, str]]:
    """Return the hashes of the files that some commits added to a table, by path."""
    found: dict[str, str] = {}
    for first in range(0, len(commits), _AT_ONCE):
        read = yield from parallel(
            [_commit(context, one) for one in commits[first : first + _AT_ONCE]]
        )
        found |= _hashes_in(location, read)
    return found


def _hashes_in(location: str, commits: Iterable[CommitObject | None]) -> dict[str, str]:
    return {
        file.path: content
        for commit in commits
        if commit is not None and location in commit.tables
        for file in commit.tables[location].change.adds
        if (content := (file.tags or {}).get(HASH_TAG)) is not None
    }


def _commit(context: Context, commit: CommitSummary) -> Program[CommitObject | None]:
    return (yield from _object(context, CommitRef(commit.txn, commit.hash, context.epoch)))


def _object(context: Context, ref: CommitRef) -> Program[CommitObject | None]:
    """Return a commit object; None if gc has deleted it, so that its tags are lost."""
    known = context.known_commit(ref.txn, ref.hash)
    if known is not None:
        return known
    key = commit_key(ref.txn, ref.hash, ref.epoch)
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        return None
    found = read_commit(key, outcome.body)
    context.keep_commit(ref.hash, found, len(outcome.body))
    return found

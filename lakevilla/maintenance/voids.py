"""What a commit that is void has lost, told to people: acknowledged, and not to be had again."""

from __future__ import annotations

from collections.abc import Sequence

from lakevilla.errors import LakeVillaError
from lakevilla.formats.files import file_key
from lakevilla.global_log.commits import CommitObject, commit_key
from lakevilla.global_log.head import CommitSummary
from lakevilla.lake.context import Context
from lakevilla.results import Finding
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Operation, given_files

#: Files that a message names; the commit object names them all.
_NAMED = 5


def voids_in(
    context: Context, commits: Sequence[CommitSummary], location: str
) -> Program[list[Finding]]:
    """What became void on a table by these commits: acknowledged rows that nobody will see."""
    findings: list[Finding] = []
    for summary in commits:
        if summary.kind == "reconcile" and location in summary.tables:
            commit = yield from context.commit_object(summary.txn, summary.hash)
            findings += yield from voids_of(context, commit, location)
    return findings


def voids_of(context: Context, commit: CommitObject, location: str) -> Program[list[Finding]]:
    """What a reconcile commit could not replay: whose it was, what it did, where its files are."""
    findings = []
    hashes = {txn: digest for _, txn, digest in commit.replaces}
    for txn, reason in commit.voided:
        digest = hashes.get(txn, "")
        key = commit_key(txn, digest)
        lost = (
            f"what it did can't be read any more: names of files that it has made hold its id, "
            f"until gc deletes them (its object is {key})"
        )
        owners = [txn]
        try:
            commit = yield from context.commit_object(txn, digest)
        except LakeVillaError:
            pass  # lost or damaged: then that is all there is to say
        else:
            mine = [operation for operation in commit.operations if operation.table == location]
            lost = f"lost is its {_described(mine, location)}; all that is known of it is in {key}"
            before = {earlier for earlier, _ in commit.voided}
            owners = [t for _, t, _ in commit.replaces if t not in before] or [txn]
        findings += [
            Finding(
                "error",
                "voided",
                f"transaction {owner} was acknowledged and is void on table {location}: {reason}; "
                f"{lost}",
                table=location,
                txn_id=owner,
                key=key,
            )
            for owner in owners
        ]
    return findings


def _described(operations: Sequence[Operation], location: str) -> str:
    name = ", ".join(type(operation).__name__.lower() for operation in operations)
    keys = [file_key(location, file.path) for one in operations for file in given_files(one)]
    if not keys:
        return name
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return f"{name}, with the rows of {', '.join(keys[:_NAMED])}{more} (until gc deletes them)"

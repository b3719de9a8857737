"""What an optimize does to a state of its table: the bins that fit it, and no others.

Pure but for the listing of files. The files are made once, by ``transaction.verbs.optimize``;
here is decided which of them take the place of those that they were made from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.files import DataFile, RemovedFile, data_files, removal
from lakevilla.lake.row_changes import only
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Optimize


def moved(operation: Optimize, snapshot: TableSnapshot) -> Program[Change]:
    """The bins of which nobody has taken a file away since, nor changed what files must be.

    Whatever else others did is no matter: a bin holds the rows of its own files, as
    they were when it was made, and a file never changes under its path and deletion
    vector.
    """
    if not snapshot.keeps_contract(operation.made_for):
        return Change()
    files = yield from only(snapshot, None, [ref for one in operation.bins for ref in one.removed])
    there = {file.ref: file for file in data_files(files)}
    kept = [one for one in operation.bins if all(ref in there for ref in one.removed)]
    return Change(
        adds=tuple(file for one in kept for file in one.files),
        removes=tuple(removal(there[r], data_change=False) for one in kept for r in one.removed),
    )


def still_moved(operation: Optimize, change: Change) -> Optimize:
    """The operation without the bins that ``change`` has let go."""
    removed = {file.ref for file in change.removes}
    bins = tuple(one for one in operation.bins if removed.issuperset(one.removed))
    return msgspec.structs.replace(operation, bins=bins)


def moving_metrics(operation: Optimize, change: Change) -> dict[str, str]:
    """``operationMetrics`` under deltalake's names."""
    partitions = {tuple(sorted(file.partition_values.items())) for file in change.adds}
    counts = {
        "numFilesAdded": len(change.adds),
        "numFilesRemoved": len(change.removes),
        "partitionsOptimized": len(partitions),
        "totalConsideredFiles": operation.considered,
        "totalFilesSkipped": operation.considered - len(change.removes),
    }
    return {
        **{name: str(value) for name, value in counts.items()},
        "filesAdded": _sizes(change.adds),
        "filesRemoved": _sizes(change.removes),
    }


def _sizes(files: Sequence[DataFile | RemovedFile]) -> str:
    sizes = [file.size or 0 for file in files] or [0]
    metrics = {
        "avg": sum(sizes) / len(sizes),
        "max": max(sizes),
        "min": min(sizes),
        "totalFiles": len(files),
        "totalSize": sum(sizes),
    }
    return json.dumps(metrics, separators=(",", ":"))

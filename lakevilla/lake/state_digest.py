"""The digest of a table's state: what an Iceberg client knew, and the name of a state's files."""

from __future__ import annotations

import msgspec
from blake3 import blake3

from lakevilla.lake.view import View

#: The version of what is made of a state: part of its name.
_RENDERING = 3


def state_digest(view: View, epoch: str, above: int | None = None) -> str:
    """Return the digest of a table's state, or of that with its first commits above the log alone.

    ``epoch``: that of the branch, where the client is told another directory for its files.
    """
    commits = [(one.txn, one.hash) for one in view.placement.overlay[:above]]
    what = [_RENDERING, view.base.table_id, view.base.version, commits, epoch]
    return blake3(msgspec.json.encode(what)).hexdigest(length=16)

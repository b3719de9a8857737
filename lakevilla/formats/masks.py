"""Set operations on file lists that stay columns."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.formats.base import FileRef

__all__ = ["masked_out", "present"]


def masked_out(files: pa.Table, refs: Collection[FileRef]) -> pa.Table:
    """``files`` without those that later commits removed or added anew.

    Most files share no path with any: one vectorised look-up sorts them out.
    """
    if not refs or files.num_rows == 0:
        return files
    masks: dict[str, set[str | None]] = {}
    for path, deletes in refs:
        masks.setdefault(path, set()).add(deletes)
    hit = pc.is_in(files.column("path"), value_set=pa.array(list(masks), pa.string()))
    rows = np.flatnonzero(hit.to_numpy())
    if len(rows) == 0:
        return files
    taken = files.select(["path", "dv_id"]).take(pa.array(rows))
    drop = np.fromiter(
        (
            vector in masks[path]
            for path, vector in zip(
                taken.column("path").to_pylist(), taken.column("dv_id").to_pylist(), strict=True
            )
        ),
        dtype=bool,
        count=len(rows),
    )
    keep = np.ones(files.num_rows, dtype=bool)
    keep[rows[drop]] = False
    return files.filter(pa.array(keep))


def present(files: pa.Table, refs: Collection[FileRef]) -> set[FileRef]:
    """Those of ``refs`` that ``files`` holds."""
    paths = {path for path, _ in refs}
    if not paths or files.num_rows == 0:
        return set()
    hit = pc.is_in(files.column("path"), value_set=pa.array(list(paths), pa.string()))
    found = files.select(["path", "dv_id"]).filter(hit)
    pairs = zip(found.column("path").to_pylist(), found.column("dv_id").to_pylist(), strict=True)
    return set(pairs) & set(refs)

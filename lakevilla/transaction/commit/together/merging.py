"""What a merge does to its branch's entry, in the replacement of HEAD that decides it.

What was merged is noted there as a base (``RefEntry.synced``): else the next merge would begin
where this one did, and do the same a second time.
"""

from __future__ import annotations

import msgspec

from lakevilla.global_log.bases import seal_base, store_base
from lakevilla.global_log.head import Head, with_refs
from lakevilla.global_log.repo import store_leaves_of
from lakevilla.store.effects import Program
from lakevilla.transaction.state.values import Merging


def with_merged(merging: Merging, following: Head) -> Program[Head]:
    """The HEAD that follows, where it tells what was merged. Its base is stored for its number."""
    made = following.replacement
    yield from store_leaves_of([merging.base.tables, merging.base.names], made)
    ref, body = seal_base(merging.base, made)
    yield from store_base(ref, body)
    entry = msgspec.structs.replace(merging.entry, synced=ref).having_reached(merging.reached)
    return with_refs(following, {merging.name: entry})

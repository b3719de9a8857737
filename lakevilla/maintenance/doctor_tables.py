"""What the doctor and recovery tell of a table: whether anybody can open it and list its files."""

from __future__ import annotations

from lakevilla.errors import LakeVillaError
from lakevilla.global_log.head import Head, application_id
from lakevilla.global_log.lineage import went_back
from lakevilla.lake.context import Context
from lakevilla.lake.fitness import is_lost
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.lake.tail import Tail
from lakevilla.lake.view import build_view
from lakevilla.results import Finding
from lakevilla.store.effects import Program


def opened(context: Context, head: Head, location: str) -> Program[Tail | Finding]:
    """A table's newest version, or what keeps everybody from it.

    What a reader needs besides the log is looked at, too: manifests, the parts of a checkpoint.
    """
    try:
        tail = yield from open_tail(context, location, missing_ok=True)
        tail = yield from probe(context, tail)
        if (yield from is_lost(context, head, location, tail)):
            return Finding(
                "error",
                "table_lost",
                f"table {location} was deleted, or created again, by another client: "
                "`unregister` it, then `register` the new one",
                table=location,
            )
        if (yield from _is_set_back(context, head, tail)):
            evidence = f"the log of table {location} holds a later commit of this lake"
            return unreadable(location, went_back(head, evidence))
        yield from (yield from build_view(context, head, location, tail)).snapshot.files()
    except LakeVillaError as error:
        return unreadable(location, error)
    return tail


def unreadable(table: str, error: LakeVillaError) -> Finding:
    """A table that no reader can open, and why."""
    key = getattr(error, "key", None)
    return Finding("error", error.kind, error.message, table, error.txn_id, key)


def _is_set_back(context: Context, head: Head, tail: Tail) -> Program[bool]:
    """Whether the log shows a commit that no HEAD can have decided: it is read after HEAD."""
    known = None if tail.tip < 0 else tail.snapshot.application_version(application_id(head))
    if known is None or known <= head.sequence:
        return False
    held = yield from context.head()
    # What was decided and published since ``head`` was read is in a newer one.
    return held is not None and held.head.replacement == head.replacement

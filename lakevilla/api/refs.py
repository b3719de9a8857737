"""The refs of a lake: kept states of all tables, under names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from lakevilla.api.arguments import (
    check_choice,
    check_flag,
    check_metadata,
    check_number,
    check_patterns,
)
from lakevilla.api.client.client import LakeClient
from lakevilla.api.history import milliseconds, utc_datetime
from lakevilla.api.times import time_or_other
from lakevilla.branches import change
from lakevilla.branches.create import At, create_ref
from lakevilla.display import HtmlList
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.refs import MAIN, RefEntry, RefKind
from lakevilla.results import Ref
from lakevilla.settings import shown

__all__ = [
    "REFS_ELSEWHERE",
    "at_of",
    "check_ref",
    "client_on",
    "create",
    "delete",
    "is_main_protected",
    "list_refs",
    "protect",
    "protect_main",
    "ref_of",
]


_METADATA_BYTES = 4096
#: Names under which users may look for the verbs here, with the hints.
REFS_ELSEWHERE = {
    "branches": "lake.refs() lists the branches and tags",
    "checkout": "lake.on(name) is the lake at a tag, or on a branch",
    "create_branch": "lake.branch(name) begins a branch",
    "create_tag": "lake.tag(name) makes a tag",
    "delete_branch": "lake.delete_ref(name) ends a branch",
    "delete_tag": "lake.delete_ref(name) deletes a tag",
    "drop_branch": "lake.delete_ref(name) ends a branch",
    "drop_tag": "lake.delete_ref(name) deletes a tag",
    "list_branches": "lake.refs() lists the branches and tags",
    "list_refs": "lake.refs() lists the branches and tags",
    "list_tags": "lake.refs() lists the branches and tags",
    "ref": "lake.refs() lists the branches and tags, and lake.on(name) is the lake there",
    "tags": "lake.refs() lists the branches and tags",
    "untag": "lake.delete_ref(name) deletes a tag",
}


def create(
    client: LakeClient,
    kind: RefKind,
    name: str,
    at: int | datetime | str | None = None,
    *,
    tables: Sequence[str] | None = None,
    absorb: Sequence[str] | None = None,
    protected: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> Ref:
    """Create a tag or a branch; see ``Lake.tag`` and ``Lake.branch``."""
    client = client.main(kind)
    protected = check_flag("protected", protected)
    entry = client.run_safely(
        create_ref(
            client.context,
            name,
            kind,
            at_of(at),
            tables=check_patterns("tables", tables),
            absorb=check_patterns("absorb", absorb, may_be_empty=True),
            protected=protected,
            metadata=_metadata(metadata),
            created_by=client.owner,
        )
    )
    return ref_of(name, entry, entry.base.sequence)


def client_on(client: LakeClient, name: str) -> LakeClient:
    """Return a client bound to a branch or to the state of a tag; see ``Lake.on``."""
    _check_text("on", name)
    return client.on(None if name == MAIN else name)


def list_refs(
    client: LakeClient, kind: Literal["branch", "tag", "clone"] | None = None
) -> list[Ref]:
    """Return the branches, tags and clones of the lake, by name."""
    client = client.main("refs")
    if kind is not None:
        check_choice("kind", kind, "branch", "tag", "clone")
    return HtmlList(
        ref_of(name, entry, version)
        for name, (entry, version) in client.run(change.all_refs(client.context)).items()
        if kind in (None, entry.kind)
    )


def delete(client: LakeClient, name: str) -> None:
    """Release a tag, or end a branch or a clone; see ``Lake.delete_ref``."""
    client = client.main("delete_ref")
    check_ref("delete_ref", name)
    client.run_safely(change.delete_ref(client.context, name))


def protect(client: LakeClient, name: str, on: bool) -> None:
    """Protect a ref from deletion, or lift its protection; see ``Lake.protect``."""
    client = client.main("protect")
    if name == MAIN:
        raise InvalidOperation(
            f"protect: {MAIN!r} is the lake itself, which is never deleted: protect_main makes "
            "it take only merges"
        )
    _check_text("protect", name)
    client.run_safely(change.protect(client.context, name, on=check_flag("on", on)))


def protect_main(client: LakeClient, on: bool) -> None:
    """Allow only merges and upkeep on the lake itself, or everything; see ``Lake.protect_main``."""
    client = client.main("protect_main")
    client.run_safely(change.protect_main(client.context, on=check_flag("on", on)))


def is_main_protected(client: LakeClient) -> bool:
    """Return whether only merges and upkeep are allowed on the lake itself."""
    head = client.main("is_main_protected").head()
    return head is not None and head.is_protected


def _check_text(verb: str, name: object) -> None:
    if isinstance(name, Ref):
        raise InvalidOperation(f"{verb} takes the name of a ref: pass {name.name!r}")
    if not isinstance(name, str):
        raise InvalidOperation(f"{verb} takes the name of a ref, not {shown(name)}")


def check_ref(verb: str, name: object) -> None:
    """Refuse a value that can't be the name of a ref in HEAD."""
    _check_text(verb, name)
    if name == MAIN:
        raise InvalidOperation(f"{verb}: {MAIN!r} is the lake itself, which is no ref")


def _metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return a ref's metadata, of limited size: it is stored in HEAD, which each commit writes."""
    entries = check_metadata(metadata)
    size = sum(len(text.encode()) for pair in entries.items() for text in pair)
    if size > _METADATA_BYTES:
        raise InvalidOperation(
            f"metadata of a ref has at most {_METADATA_BYTES} bytes, and this has {size}: keep it "
            "in a table, and name that here"
        )
    return entries


def at_of(at: object) -> At:
    """Return the state that a caller's ``at`` names. Raises ``InvalidOperation``."""
    at = time_or_other(at, "at")
    match at:
        case None:
            return None
        case datetime():
            return "time", milliseconds(at)
        case str():
            return None if at == MAIN else ("ref", at)
        case Ref():
            raise InvalidOperation(f"at takes the name of a ref: pass {at.name!r}")
        case bool():
            pass
        case int():
            return "version", check_number("at", at)
    raise InvalidOperation(
        f"at is a global version, an aware datetime or the name of a ref, not {shown(at)}"
    )


def ref_of(name: str, entry: RefEntry, version: int) -> Ref:
    """Return the ``Ref`` for a caller, of an entry in HEAD."""
    return Ref(
        name,
        entry.kind,
        version,
        entry.base.sequence,
        utc_datetime(entry.created_ms),
        entry.created_by,
        entry.protected,
        dict(entry.metadata),
        None if entry.synced is None else entry.synced.sequence,
    )

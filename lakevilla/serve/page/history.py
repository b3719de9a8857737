"""The view of the history: commits of the lake and of its newest branches, as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from lakevilla.api.history import utc_datetime
from lakevilla.api.lake import Lake
from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.errors import RefNotFound, VersionNotFound
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import load_refs
from lakevilla.results import HistoryEntry, LoggedOperation
from lakevilla.serve.page.graph import Commit, Line, drawing
from lakevilla.serve.page.shown import Body, Params, Shown

#: A page has so many commits of one line.
COMMITS = 30
#: The graph has so many branches, each with so many of its newest commits.
_BRANCHES, _BRANCH_COMMITS = 5, 10
#: A page of refs has so many.
_REFS = 50


def history(shown: Shown, params: Params) -> Body:
    """Show commits, newest first: with those of branches on the first page of the lake."""
    until = params.number("until") or shown.version
    entries = shown.lake.history(COMMITS + 1, until=until)
    page, more = entries[:COMMITS], entries[COMMITS:]
    if shown.version and not (page and page[0].version == until):
        raise VersionNotFound(f"global version {shown.version} does not exist, or is not kept")
    refs = refs_of(shown.main)
    is_main = shown.lake is shown.main
    tags = _tags(refs) if is_main else {}
    commits = [_commit(0, one, shown.on, tags) for one in page]
    lines = [Line(shown.name, 0)]
    chosen, left_out = _chosen(refs) if is_main and page else ([], [])
    for name, entry in chosen:
        line = Line(name, len(lines), entry.base.sequence)
        own = _own(shown.main, line) if until is None else []
        if more:  # the others would stand below all that is shown
            own = [one for one in own if one.timestamp >= page[-1].timestamp]
        if own or line.base >= page[-1].version:
            lines.append(line)
            commits += own
    commits.sort(key=lambda one: (one.timestamp, one.version), reverse=True)
    commits = _with_heads(commits, lines, is_newest=until is None)
    return Body(
        "history.html",
        "History",
        {
            "commits": commits,
            "graph": drawing(commits, lines),
            "left_out": left_out,
            "older": more[0].version if more else None,
            "until": until,
            "base": refs[shown.name].base.sequence if shown.name in refs else None,
        },
    )


def refs_of(lake: Lake) -> dict[str, RefEntry]:
    """Return the refs in HEAD, by name; no branch is opened for it."""
    client = lake._client
    head = client.head()
    if head is None:
        return {}
    client.run(load_refs(head))
    return dict(sorted(head.refs.items()))


def ref_list(shown: Shown, params: Params) -> Body:
    """Show branches, tags and clones by name, a page of them."""
    after = params.text("after")
    found = [(name, entry) for name, entry in refs_of(shown.main).items() if name > after]
    page = [
        {
            "name": name,
            "kind": entry.kind,
            "base": entry.base.sequence,
            "created": utc_datetime(entry.created_ms),
            "by": entry.created_by,
            "protected": entry.protected,
            "merged": None if entry.synced is None else entry.synced.sequence,
        }
        for name, entry in found[:_REFS]
    ]
    following = page[-1]["name"] if len(found) > _REFS else None
    return Body("refs.html", "Branches and tags", {"refs": page, "next": following})


#: What a page calls the kinds of commits, and operations, that have a name of their own here.
_KINDS = {"foreign": "another client", "register": "tables entered or left the lake"}
_WORDS = {"ICEBERG COMMIT": "by an Iceberg client"}


def described(entry: HistoryEntry) -> str:
    """Return in a few words what a commit did."""
    if entry.merged:
        return f"merge of {entry.merged}"
    if entry.kind != "transaction":
        return _KINDS.get(entry.kind, entry.kind)
    names = [_WORDS.get(one, one.lower()) for part in entry.operations for one in _performed(part)]
    return ", ".join(dict.fromkeys(names)) or "transaction"


_noted = JsonDecoder(list[dict[str, Any]])


def _performed(one: LoggedOperation) -> list[str]:
    """Return the names of the operations on a table: several are noted as one."""
    try:
        noted = _noted.decode(one.parameters["operations"])
        return [str(operation["operation"]) for operation in noted]
    except (KeyError, msgspec.MsgspecError):
        return [one.operation]


def _commit(track: int, entry: HistoryEntry, on: str | None, tags: dict[int, list[str]]) -> Commit:
    return Commit(
        track,
        entry.version,
        entry.timestamp,
        entry.kind,
        described(entry),
        entry.tables,
        on,
        entry.merged,
        tuple(tags.get(entry.version, ())),
    )


def _tags(refs: dict[str, RefEntry]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name, entry in refs.items():
        if entry.kind == "tag":
            found.setdefault(entry.base.sequence, []).append(name)
    return found


def _chosen(refs: dict[str, RefEntry]) -> tuple[list[tuple[str, RefEntry]], list[str]]:
    """Return the branches of the graph, and the names of the others."""
    branches = [(name, entry) for name, entry in refs.items() if entry.kind == "branch"]
    branches.sort(key=lambda one: one[1].created_ms, reverse=True)
    return branches[:_BRANCHES], [name for name, _ in branches[_BRANCHES:]]


def _own(lake: Lake, line: Line) -> list[Commit]:
    """Return the newest commits of a branch that were made on it."""
    try:
        entries = lake.on(line.name).history(_BRANCH_COMMITS)
    except RefNotFound:  # it has ended meanwhile
        return []
    return [_commit(line.track, one, line.name, {}) for one in entries if one.version > line.base]


def _with_heads(
    commits: Sequence[Commit], lines: Sequence[Line], *, is_newest: bool
) -> list[Commit]:
    """Note each line's name with its newest commit, or with its base where it has none."""
    heads: dict[int, list[tuple[str, int]]] = {}
    rows = {(one.track, one.version): row for row, one in enumerate(commits)}
    for line in lines:
        own = [row for row, one in enumerate(commits) if one.track == line.track]
        row = own[0] if own else rows.get((0, line.base))
        if row is not None and (is_newest or not own):
            heads.setdefault(row, []).append((line.name, line.track))
    return [replace(one, heads=tuple(heads.get(row, ()))) for row, one in enumerate(commits)]

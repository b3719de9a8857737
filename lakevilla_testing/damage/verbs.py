"""The commands and verbs that clients use on a damaged lake, and what each of them changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lakevilla.api.lake import Lake
from lakevilla.errors import LakeVillaError
from lakevilla_testing.damage.scene import QUEUED

#: The row of the scene's commit that is decided, and not in all logs.
PENDING = 8
#: A number that no HEAD has.
_NO_HEAD = 10**9
#: By the name of a state and a table, the ids of the rows; None where it does not exist.
Rows = dict[str, list[int] | None]

#: What clients read: the state (of a ref, or of the lake) and the table.
STATES = (
    ("", "a"),
    ("", "sales/b"),
    ("", "revenue"),
    ("", "copies/a"),
    ("closing", "a"),
    ("closing", "gone"),
    ("etl", "a"),
    ("etl", "sales/b"),
)


def name_of(state: str, table: str) -> str:
    return f"{state}:{table}"


@dataclass(frozen=True)
class Verb:
    """A command.

    Attributes
    ----------
    kind : str
        ``clean``: deletes what nothing needs. ``look``: changes nothing. ``rebuild``: makes
        another HEAD on purpose. ``write``: commits.
    after : callable
        Return the rows after the verb has succeeded.
    """

    name: str
    kind: Literal["clean", "look", "rebuild", "write"]
    run: Callable[[Lake, str], object]
    after: Callable[[Rows], Rows] = dict


def appended(state: str, table: str, number: int) -> Callable[[Rows], Rows]:
    def after(rows: Rows) -> Rows:
        name = name_of(state, table)
        found = {**rows, name: sorted([*(rows[name] or []), number])}
        if (state, table) == ("", "sales/b") and rows[name_of("", "revenue")] is not None:
            found[name_of("", "revenue")] = found[name]
        return found

    return after


def _without(*names: str) -> Callable[[Rows], Rows]:
    return lambda rows: {**rows, **dict.fromkeys(names)}


def _deleted(rows: Rows) -> Rows:
    name = name_of("", "a")
    return {**rows, name: [one for one in rows[name] or [] if one != 3]}


def _append(table: str, number: int) -> Callable[[Lake], object]:
    return lambda lake: lake.run(lambda txn: txn.append(table, [{"id": number, "v": 0}]))


def _append_queued(lake: Lake, _: str) -> object:
    """Append in a place of the table's queue, behind the dead transaction of the scene."""
    with lake.transaction(QUEUED) as txn:
        txn.take_turn("sales/b")
        txn.append("sales/b", [{"id": 904, "v": 0}])
    return txn.result


def _rebuild(**how: bool) -> Callable[[Lake, str], object]:
    return lambda lake, _: lake.recover(**how)


def _reset(lake: Lake, _: str) -> object:
    """Reset HEAD to the newest that the error for a number that no HEAD has names."""
    try:
        return lake.recover(reset_head=_NO_HEAD)
    except LakeVillaError as error:
        numbers = [
            int(word.strip(",.;")) for word in str(error).split() if word.strip(",.;").isdigit()
        ]
        numbers = [one for one in numbers if 0 < one < _NO_HEAD]
        if not numbers:
            raise
        return lake.recover(reset_head=max(numbers))


def _resume(lake: Lake, saved: str) -> object:
    txn = lake.resume(saved)
    return txn.commit()


def _onto_the_lake(rows: Rows) -> dict[str, list[int]]:
    """Return the rows of both tables with the changes made on the branch."""
    found = {}
    for table, deleted in (("a", {2}), ("sales/b", set())):
        made = {one for one in rows[name_of("etl", table)] or [] if one >= 100}
        found[table] = sorted({*(rows[name_of("", table)] or [])} - deleted | made)
    return found


def _merged(rows: Rows) -> Rows:
    found = _onto_the_lake(rows)
    names = [name_of("", "sales/b")]
    if rows[name_of("", "revenue")] is not None:
        names.append(name_of("", "revenue"))
    return {**rows, name_of("", "a"): found["a"], **dict.fromkeys(names, found["sales/b"])}


def _rebased(rows: Rows) -> Rows:
    return {**rows, **{name_of("etl", table): ids for table, ids in _onto_the_lake(rows).items()}}


VERBS = {
    verb.name: verb
    for verb in (
        Verb("gc", "clean", lambda lake, _: lake.gc()),
        Verb("vacuum a", "clean", lambda lake, _: lake.table("a").vacuum(dry_run=False)),
        Verb("vacuum b", "clean", lambda lake, _: lake.table("sales/b").vacuum(dry_run=False)),
        Verb("vacuum copy", "clean", lambda lake, _: lake.table("copies/a").vacuum(dry_run=False)),
        Verb(
            "vacuum all of a",
            "clean",
            lambda lake, _: lake.table("a").vacuum(
                0, dry_run=False, enforce_retention_duration=False
            ),
        ),
        Verb("maintain", "clean", lambda lake, _: lake.maintain()),
        Verb("recover", "clean", lambda lake, _: lake.recover()),
        Verb("keep closing", "clean", lambda lake, _: lake.keep("closing")),
        Verb("keep etl", "clean", lambda lake, _: lake.keep("etl")),
        Verb("keep clone", "clean", lambda lake, _: lake.keep("copies/a")),
        Verb("optimize", "clean", lambda lake, _: lake.table("a").optimize()),
        Verb("optimize b", "clean", lambda lake, _: lake.table("sales/b").optimize()),
        Verb("absorb", "clean", lambda lake, _: lake.absorb()),
        Verb("doctor", "look", lambda lake, _: lake.doctor()),
        Verb("doctor files", "look", lambda lake, _: lake.doctor(files=True)),
        Verb("verify", "look", lambda lake, _: lake.verify()),
        Verb("dry gc", "look", lambda lake, _: lake.gc(dry_run=True)),
        Verb("history", "look", lambda lake, _: list(lake.history())),
        Verb("changes", "look", lambda lake, _: lake.changes(0, tables=["a"])),
        Verb("diff", "look", lambda lake, _: lake.diff("closing")),
        Verb("metrics", "look", lambda lake, _: lake.metrics()),
        Verb("transactions", "look", lambda lake, _: lake.transactions()),
        Verb("outcome", "look", lambda lake, saved: lake.outcome(saved)),
        Verb("tables", "look", lambda lake, _: lake.tables()),
        Verb("refs", "look", lambda lake, _: lake.refs()),
        Verb("exists", "look", lambda lake, _: lake.exists()),
        Verb("discover", "look", lambda lake, _: lake.discover()),
        Verb("sql", "look", lambda lake, _: lake.sql("SELECT count(*) FROM a")),
        Verb("adopt", "look", lambda lake, _: lake.doctor(adopt=True)),
        Verb("rebuild head", "rebuild", _rebuild(rebuild_head=True)),
        Verb("force head", "rebuild", _rebuild(rebuild_head=True, force=True)),
        Verb("reset head", "rebuild", _reset),
        Verb("confirm head", "rebuild", _rebuild(confirm_head=True)),
        Verb("append", "write", lambda lake, _: _append("a", 900)(lake), appended("", "a", 900)),
        Verb(
            "append b",
            "write",
            lambda lake, _: _append("sales/b", 901)(lake),
            appended("", "sales/b", 901),
        ),
        Verb(
            "append copy",
            "write",
            lambda lake, _: _append("copies/a", 902)(lake),
            appended("", "copies/a", 902),
        ),
        Verb("append queued", "write", _append_queued, appended("", "sales/b", 904)),
        Verb(
            "append etl",
            "write",
            lambda lake, _: _append("a", 903)(lake.on("etl")),
            appended("etl", "a", 903),
        ),
        Verb(
            "delete",
            "write",
            lambda lake, _: lake.run(lambda txn: txn.delete("a", "id = 3")),
            _deleted,
        ),
        Verb("update", "write", lambda lake, _: lake.run(lambda t: t.update("a", {"v": "v + 1"}))),
        Verb("create", "write", lambda lake, _: lake.create_table("new", [{"id": 1}])),
        Verb(
            "create gone",
            "write",
            lambda lake, _: lake.run(lambda txn: txn.create_table("wiped", [{"id": 1}])),
        ),
        Verb("register gone", "write", lambda lake, _: lake.register("gone")),
        Verb(
            "drop",
            "write",
            lambda lake, _: lake.drop_table("sales/b"),
            _without(name_of("", "sales/b"), name_of("", "revenue")),
        ),
        Verb(
            "drop data",
            "write",
            lambda lake, _: lake.drop_table("copies/a", delete_data=True),
            _without(name_of("", "copies/a")),
        ),
        Verb(
            "rename",
            "write",
            lambda lake, _: lake.rename_table("revenue", "income"),
            _without(name_of("", "revenue")),
        ),
        Verb(
            "unregister",
            "write",
            lambda lake, _: lake.unregister("revenue"),
            _without(name_of("", "revenue")),
        ),
        Verb("tag", "write", lambda lake, _: lake.tag("new")),
        Verb("branch", "write", lambda lake, _: lake.branch("fresh")),
        Verb("clone", "write", lambda lake, _: lake.clone("a", "other/a")),
        Verb("protect", "write", lambda lake, _: lake.protect("closing")),
        Verb(
            "delete tag",
            "write",
            lambda lake, _: lake.delete_ref("closing"),
            _without(name_of("closing", "a"), name_of("closing", "gone")),
        ),
        Verb(
            "delete branch",
            "write",
            lambda lake, _: lake.delete_ref("etl"),
            _without(name_of("etl", "a"), name_of("etl", "sales/b")),
        ),
        Verb("merge", "write", lambda lake, _: lake.merge("etl"), _merged),
        Verb("rebase", "write", lambda lake, _: lake.rebase("etl"), _rebased),
        Verb("resume", "write", _resume, appended("", "sales/b", 50)),
        Verb("abort", "write", lambda lake, saved: lake.abort(saved)),
    )
}

"""One damage and some commands: what must hold while it lasts, and when the objects are back.

- A command ends, or raises an error of the library.
- Clients read the right rows, or are refused by name.
- Nothing that could still be restored is deleted or overwritten: with the objects back, all is as
  it was, and as the commands have changed it, and upkeep finds no fault.

Two damages have no such end. On an older HEAD a client may commit, and then there are two histories
(docs/design/0053-gone-back.md). And a rebuild makes another HEAD from what is left: commits that
were in no log may be lost, as its report says, and what it has left out comes back by the commands
that the report names.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from lakevilla.api.lake import Lake
from lakevilla.api.transaction import Transaction
from lakevilla.clock import Clock
from lakevilla.errors import (
    CommitOutcomeUnknown,
    ForeignConflict,
    LakeVillaError,
    RefNotFound,
    TableNotFound,
)
from lakevilla.settings import Settings
from lakevilla_testing.damage.damages import Damage, drawn, is_numbered_head
from lakevilla_testing.damage.scene import Scene, small_objects
from lakevilla_testing.damage.verbs import PENDING, STATES, VERBS, Rows, Verb, appended, name_of

#: The settings of all clients: short waits, and no sync of files.
SETTINGS = Settings(
    durable_files=False,
    retry_base_seconds=0.001,
    retry_cap_seconds=0.002,
    retry_limit=3,
    lease_seconds=0.2,
    wait_timeout_seconds=0.1,
    publish_timeout_seconds=0.5,
)
#: The commands that find no fault in a lake with all of its objects.
_UPKEEP = ("recover", "gc", "vacuum a", "maintain", "doctor", "verify")
#: Names of objects that clients write again with the right content.
_WRITTEN_AGAIN = ("lake.json", "version-hint.text", "_last_checkpoint", "time.json")
_DIRECTORIES_WRITTEN_AGAIN = ("/maintenance/", "/recent/", "/markers/", "_lakevilla/txns/")
#: The tables of the commit that is not in all logs.
_PENDING_IN = ("a", "sales/b")
#: The most characters of an error that a line shows.
_SHOWN = 300


class Broken(AssertionError):
    """Something that no client may do on a damaged lake."""


@dataclass
class Cell:
    """One run.

    Attributes
    ----------
    warm : bool
        Whether the client of the commands was at work before the damage: it has caches, and an
        open transaction that commits after the commands.
    expected : dict
        The rows of the scene.
    said : list of str
        What happened, a line a command.
    """

    scene: Scene
    damage: Damage
    verbs: Sequence[Verb]
    warm: bool
    expected: Rows
    said: list[str] = field(default_factory=list)
    done: list[Verb] = field(default_factory=list)

    def __str__(self) -> str:
        keys = sorted(self.damage.objects)
        objects = keys[0] if len(keys) == 1 else f"{len(keys)} objects"
        client = "an open client" if self.warm else "a new client"
        heading = f"{self.scene.name}, {self.damage.name} ({objects}), by {client}:"
        return "\n  ".join([heading, *self.said])

    @property
    def is_rebuilt(self) -> bool:
        return any(verb.kind == "rebuild" for verb in self.done)

    def breaks(self, what: str) -> Broken:
        """Return the error for something that must not happen."""
        return Broken(f"{self}\n{what}")


def rows_of_scene(scene: Scene) -> Rows:
    """Return what clients read of a scene without damage."""
    with small_objects():
        scene.lay_out()
        found = _all_rows(scene)
    return {name: rows for name, rows in found.items() if not isinstance(rows, LakeVillaError)}


def draw(scene: Scene, expected: Rows, seed: int) -> Cell:
    """Draw a damage, one to three commands, and whether their client is open already."""
    choice = random.Random(seed)
    damage = drawn(scene, choice)
    verbs = [VERBS[choice.choice(sorted(VERBS))] for _ in range(choice.randint(1, 3))]
    return Cell(scene, damage, verbs, choice.random() < 0.5, expected)


def run_cell(cell: Cell) -> None:
    """Run a cell at its scene's root.

    Raises
    ------
    Broken
        Something happened that must never happen.
    """
    scene = cell.scene
    with small_objects():
        scene.lay_out()
        with scene.open(SETTINGS) as lake:
            possible = _perform(cell, lake)
        check_reads(cell, possible)
        written = cell.damage.restore(scene.root, scene.files)
        if not _is_another_history(cell, written):
            check_restored(cell, possible, written)


# -------------------- commands


def _perform(cell: Cell, lake: Lake) -> list[Rows]:
    """Damage the lake and run the commands; return the rows that are possible then."""
    txn = _begun(lake) if cell.warm else None
    cell.damage.strike(cell.scene.root)
    possible = [cell.expected]
    for table, *names in (("a", "a"), ("sales/b", "sales/b", "revenue")):
        # A client cancels an old commit, and reports it, if a file of it is gone (note 19).
        if cell.damage.loses_files_of(table):
            possible += [_without_the_pending(rows, *names) for rows in possible]
    # `recover` cancels a decided commit whose object is gone, and reports that (note 19).
    if cell.scene.pending in cell.damage.objects and VERBS["recover"] in cell.verbs:
        possible += [_without_the_pending(rows, "a") for rows in possible]
    for verb in cell.verbs:
        possible = perform(cell, verb, lake, possible)
    if txn is not None:
        opened = Verb("open commit", "write", lambda *_: txn.commit(), appended("", "sales/b", 990))
        possible = perform(cell, opened, lake, possible)
    return possible


def _begun(lake: Lake) -> Transaction:
    """Read everything, so that the client caches it, and begin a transaction."""
    for state in STATES:
        _rows_of(lake, *state)
    txn = lake.transaction()
    txn.read("a")
    txn.append("sales/b", [{"id": 990, "v": 0}])
    return txn


def _without_the_pending(rows: Rows, *tables: str) -> Rows:
    """Return the rows after the commit that is in no log is cancelled on some tables."""
    names = [name_of("", table) for table in tables]
    found = {name: rows[name] for name in names}
    return {
        **rows,
        **{
            n: None if ids is None else [i for i in ids if i != PENDING] for n, ids in found.items()
        },
    }


def perform(cell: Cell, verb: Verb, lake: Lake, possible: list[Rows]) -> list[Rows]:
    """Perform a verb; return the rows that are possible then.

    Raises
    ------
    Broken
        The verb has raised something else than an error of the library.
    """
    try:
        result = verb.run(lake, cell.scene.saved)
    except LakeVillaError as error:
        cell.said.append(f"{verb.name}: {_short(error)}")
        if isinstance(error, CommitOutcomeUnknown | ForeignConflict):
            return possible + [verb.after(rows) for rows in possible]
        return possible
    except Exception as error:
        raise cell.breaks(f"{verb.name} raised {_short(error)}") from error
    cell.done.append(verb)
    cell.said.append(f"{verb.name}: done {' '.join(_wrong(result))}")
    return possible_after(cell, verb, possible)


def possible_after(cell: Cell, verb: Verb, possible: list[Rows]) -> list[Rows]:
    """Return the rows that are possible after a verb has succeeded."""
    after = [verb.after(rows) for rows in possible]
    return [*after, *_rebuilt(cell, after)] if verb.kind == "rebuild" else after


def _rebuilt(cell: Cell, possible: list[Rows]) -> list[Rows]:
    """Return the rows that are possible after a rebuild, too.

    A ref that was deleted returns as long as gc has left its base.
    """
    refs = {name: rows for name, rows in cell.expected.items() if not name.startswith(":")}
    possible = [*possible, *({**rows, **refs} for rows in possible)]
    return [*possible, *(_without_the_pending(rows, "a") for rows in possible)]


def _wrong(result: object) -> list[str]:
    """Return the kinds of errors in a report."""
    findings = getattr(result, "findings", ())
    return sorted({one.kind for one in findings if one.severity == "error"})


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_SHOWN]}"


# -------------------- checks


def _rows_of(lake: Lake, state: str, table: str) -> list[int] | LakeVillaError | None:
    """Return the ids in a table, None if there is no such ref or table, or the refusal."""
    try:
        found = (lake.on(state) if state else lake).read(table)
    except (RefNotFound, TableNotFound):
        return None
    except LakeVillaError as error:
        return error
    return sorted(found["id"].to_pylist())


def _all_rows(scene: Scene) -> dict[str, list[int] | LakeVillaError | None]:
    """Return what a new client reads."""
    with scene.open(SETTINGS) as lake:
        return {name_of(*state): _rows_of(lake, *state) for state in STATES}


def check_reads(cell: Cell, possible: list[Rows]) -> None:
    """Check that the rows that clients read on the damaged lake are right."""
    if cell.damage.sets_head_back(cell.scene.files) or cell.damage.how == "restored":
        return
    for name, rows in _all_rows(cell.scene).items():
        if isinstance(rows, list) and all(rows != one[name] for one in possible):
            raise cell.breaks(f"{name} reads {rows}, not {possible[0][name]}")


def _is_another_history(cell: Cell, written: list[str]) -> bool:
    """Return whether clients have gone on from another HEAD than the lost one."""
    forked = cell.damage.sets_head_back(cell.scene.files) and any(
        verb.kind == "write" for verb in cell.done
    )
    return forked or any(key.endswith("HEAD.json") or is_numbered_head(key) for key in written)


def check_restored(
    cell: Cell, possible: list[Rows], written: list[str], clock: Clock | None = None
) -> None:
    """Check that with the objects back everything is there, before upkeep and after it."""
    for key in written:
        if any(
            cell.damage.loses_files_of(table) and key.startswith(table) for table in _PENDING_IN
        ):
            continue  # the next entry of the log, which cancels the commit
        again = key.endswith(_WRITTEN_AGAIN) or any(at in key for at in _DIRECTORIES_WRITTEN_AGAIN)
        if not again:
            raise cell.breaks(f"a client has written {key} while it was lost")
    with cell.scene.open(SETTINGS, clock=clock) as lake:
        if cell.is_rebuilt:
            _take_in_what_was_left_out(cell, lake, possible[0])
        _check_all(cell, possible, "with the objects back")
        # A refused client may have stored an object for the next HEAD; a commit ends the doubt.
        table = "append b" if possible[0][name_of("", "sales/b")] else "append"
        possible = _succeeds(cell, table, lake, possible)
        for name in (*(("confirm head",) if cell.is_rebuilt else ()), *_UPKEEP):
            if name != "vacuum a" or possible[0][name_of("", "a")] is not None:
                _succeeds(cell, name, lake, possible)
    _check_all(cell, possible, "after upkeep with the objects back")


def _succeeds(cell: Cell, name: str, lake: Lake, possible: list[Rows]) -> list[Rows]:
    possible = perform(cell, VERBS[name], lake, possible)
    if cell.said[-1] != f"{name}: done ":
        raise cell.breaks(f"with the objects back {name} finds a fault")
    return possible


def _take_in_what_was_left_out(cell: Cell, lake: Lake, expected: Rows) -> None:
    """Do as the report of a rebuild says with the refs and tables that it has left out."""
    found = _all_rows(cell.scene)
    lost = {name for name, rows in expected.items() if rows is not None and not found[name]}
    work: list[tuple[str, Callable[[], object]]] = []
    if any(not name.startswith(":") for name in lost):
        again = VERBS["force head"]
        work.append(("force head again", lambda: again.run(lake, "")))
    tables = [name[1:] for name in lost if name.startswith(":")]
    for table in sorted(set(tables) - {"revenue"}):
        work.append((f"register {table}", partial(lake.register, table)))
    if "revenue" in tables:
        work.append(("register revenue", lambda: lake.register("revenue", "sales/b")))
    for name, call in work:
        try:
            call()
        except LakeVillaError as error:
            cell.said.append(f"{name}: {_short(error)}")
        else:
            cell.said.append(f"{name}: done")


def _check_all(cell: Cell, possible: list[Rows], when: str) -> None:
    found = _all_rows(cell.scene)
    if found in possible:
        return
    wrong = {
        name: rows if not isinstance(rows, LakeVillaError) else _short(rows)
        for name, rows in found.items()
        if all(rows != one[name] for one in possible)
    }
    raise cell.breaks(f"{when}: clients read {wrong or found}, not {possible[0]}")

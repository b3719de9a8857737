"""One life of a drawn lake: steps by many clients, and what all readers see after each of them.

Rows belong to a place: the lake changes those whose id has the remainder 0 by three, and each of
two branches those of another one. So what a merge or a rebase makes is known by the rows alone.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import lakevilla as lv
from lakevilla.api.execution import sources
from lakevilla.store.base import WrappedStore
from lakevilla.transaction.commit import squash
from lakevilla_testing.damage.scene import open_lake, small_objects
from tests.support.lives.model import Branch, Model, Tables, carried, changed, without
from tests.support.places import Place
from tests.support.stores import Closed

#: The lake, and its branches.
PLACES = ("", "etl", "fix")
#: The names of clones.
CLONES = ("c0", "c1")
#: The steps of a life, which take a few seconds.
STEPS = 24
DAY = 24 * 3600.0
#: A client that waits for nothing. Half of the lakes forget at once what gc may forget.
_QUICK = {
    "durable_files": False,
    "retry_base_seconds": 0.001,
    "retry_cap_seconds": 0.002,
    "publish_timeout_seconds": 0.5,
    "lease_seconds": 0.2,
}
_FORGETFUL = {"max_age_seconds": 0, "reuse_after_seconds": 0}
_MARKS = {
    "delta": {"delta.enableDeletionVectors": "true"},
    "iceberg": {"write.delete.mode": "merge-on-read"},
}


class Wrong(AssertionError):
    """What a client has seen, and no client may see."""


@contextmanager
def small_limits() -> Iterator[None]:
    """Let small lakes have pages, leaves, squashed commits and staged rows."""
    before = squash.MOST_APART, sources._INLINE_BYTES
    squash.MOST_APART, sources._INLINE_BYTES = 2, 100
    try:
        with small_objects():
            yield
    finally:
        squash.MOST_APART, sources._INLINE_BYTES = before


class Life:
    """One drawn lake; ``told`` has its steps, ``done`` counts them by kind."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = Random(f"life {seed}")
        self.root = root
        self.format: Any = self.random.choice(("delta", "iceberg"))
        self.place = Place(str(root), format=self.format)
        own = _FORGETFUL if self.random.random() < 0.5 else {}
        self.settings = lv.Settings(**_QUICK, **own)
        self.model = Model()
        self.told: list[str] = []
        self.done: Counter[str] = Counter()
        self._numbers = 0
        self._lake: lv.Lake | None = None

    def __str__(self) -> str:
        kind = "forgetful" if self.settings.max_age_seconds == 0 else "patient"
        return "\n  ".join([f"a {kind} lake of {self.format}:", *self.told])

    # -- clients -----------------------------------------------------------------

    @property
    def lake(self) -> lv.Lake:
        """Return the client of this step: the one before, or a new one."""
        if self._lake is None or self.random.random() < 0.4:
            self.close()
            self._lake = open_lake(self.root, self.settings)
        return self._lake

    def close(self) -> None:
        if self._lake is not None:
            self._lake.close()
        self._lake = None

    def at(self, place: str) -> lv.Lake:
        return self.lake.on(place) if place else self.lake

    # -- a life ------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Live the life. Raises ``Wrong``."""
        with small_limits():
            try:
                self._furnish()
                for _ in range(steps):
                    self._step()
                self._end()
            except Wrong:
                raise
            except Exception as error:
                raise Wrong(f"{type(error).__name__}: {error}") from error
            finally:
                self.close()

    def _furnish(self) -> None:
        for number in range(self.random.randint(2, 4)):
            marks = _MARKS[self.format] if self.random.random() < 0.5 else {}
            rows = {self._number(""): 0 for _ in range(5)}
            rows |= {self._number(place): 0 for place in PLACES[1:] for _ in range(3)}
            self.lake.create_table(f"t{number}", _arrow(rows), format=self.format, properties=marks)
            self.model.main = changed(self.model.main, f"t{number}", rows)
        self._note()

    def _step(self) -> None:
        kinds = [name for name in dir(self) if name.startswith("do_")]
        weights = [_WEIGHTS.get(name, 1) for name in kinds]
        (kind,) = self.random.choices(kinds, weights)
        self.told.append(kind[3:])
        try:
            getattr(self, kind)()
        except _Skip:
            self.told.pop()
            return
        except lv.LakeVillaError as error:
            if not isinstance(error, _MAY_REFUSE.get(kind, ())):
                raise
            self.told[-1] += f": {type(error).__name__} {' '.join(str(error).split())[:120]}"
            self.done["refused"] += 1
        self.done[kind[3:]] += 1
        self._note()
        self.check(whole=kind in _DELETING)

    def _end(self) -> None:
        """Clean up twice, by new clients: nothing that is needed may go."""
        for _ in range(2):
            self.close()
            self.lake.recover()
            self._clean()
            self.check(whole=True)
        for report in (self.lake.doctor(), self.lake.verify()):
            if not report.ok:
                raise Wrong(str(report))

    # -- what clients see --------------------------------------------------------

    def check(self, *, whole: bool = False) -> None:
        """Compare what a new client reads with the model: the lake, or at times all its states."""
        model = self.model
        with open_lake(self.root, self.settings) as lake:
            self._same("the lake", lake, model.main)
            if whole or self.random.random() < 0.3:
                for name, branch in model.branches.items():
                    self._same(f"branch {name}", lake.on(name), branch.now)
                for name, tables in model.tags.items():
                    self._same(f"tag {name}", lake.on(name), tables)
            if model.past and (whole or self.random.random() < 0.3):
                self._check_past(lake, "the lake", model.past)
                for name in model.branches:
                    self._check_past(lake.on(name), f"branch {name}", model.past_of[name])

    def _same(self, what: str, lake: Any, tables: Tables) -> None:
        with lake.snapshot() as shown:
            if set(names := list(lake)) != set(tables):
                raise Wrong(f"{what} has the tables {sorted(names)}, not {sorted(tables)}")
            for name, rows in tables.items():
                self._compare(f"{name} of {what}", shown.read(name), rows)

    def _compare(self, what: str, found: pa.Table, rows: Any) -> None:
        seen = Counter((row["id"], row["v"]) for row in found.to_pylist())
        wanted = Counter(rows.items())
        if seen != wanted:
            raise Wrong(f"{what} has {dict(seen - wanted)}, and lacks {dict(wanted - seen)}")

    def _check_past(self, lake: Any, what: str, past: dict[int, Tables]) -> None:
        version = self.random.choice(sorted(past))
        with suppress(lv.VersionNotFound), lake.snapshot(version) as shown:
            for name, rows in past[version].items():
                # A table that a clone has shown is not there any more once the clone has ended.
                ended = lv.TableNotFound if name in CLONES else lv.VersionNotFound
                with suppress(lv.VersionNotFound, ended):
                    self._compare(f"{name} of {what} at {version}", shown.read(name), rows)

    def _note(self) -> None:
        with open_lake(self.root, self.settings) as lake:
            with lake.snapshot() as shown:
                if shown.version is not None:
                    self.model.past[shown.version] = self.model.main
            for name, branch in self.model.branches.items():
                with lake.on(name).snapshot() as shown:
                    if shown.version is not None:
                        self.model.past_of[name][shown.version] = branch.now

    # -- rows --------------------------------------------------------------------

    def do_append(self) -> None:
        place, table = self._place(), self._table()
        # A branch with keys that the lake lacks is not rebased.
        key = f"key {len(self.told)}" if self.random.random() < (0.2 if place else 0.6) else None
        number = self._number(place)
        self._append(self.at(place), table, number, key)
        self._has(place, table, {**self.model.at(place)[table], number: 0})
        if key is not None:
            self.model.note_key(place, key)

    def do_append_again(self) -> None:
        """Do again what has committed under its key, at a place that knows it."""
        place = self._place()
        if not self.model.keys_at(place):
            raise _Skip
        self._again(place, self.random.choice(sorted(self.model.keys_at(place))))

    def _again(self, place: str, key: str) -> None:
        """Do again what has committed under a key: the key is refused, or nothing happens."""
        with suppress(lv.AlreadyCommitted, lv.CommitOutcomeUnknown):
            self._append(self.at(place), self._table(), self._number(place), key)

    def _newest_again(self, place: str) -> None:
        """Do again, at times, what has committed under the newest keys."""
        if self.random.random() < 0.7:
            for key in sorted(self.model.keys_at(place), key=_number_of)[-3:]:
                self._again(place, key)

    def do_change(self) -> None:
        """Delete a row, and count one up."""
        place, table = self._place(), self._table()
        rows = dict(self.model.at(place)[table])
        own = sorted(one for one in rows if one % 3 == PLACES.index(place))
        if len(own) < 2:
            raise _Skip
        gone, up = self.random.sample(own, 2)

        def work(txn: lv.Transaction) -> None:
            txn.delete(table, f"id = {gone}")
            txn.update(table, {"v": "v + 1"}, f"id = {up}")

        self.at(place).run(work)
        del rows[gone]
        self._has(place, table, {**rows, up: rows[up] + 1})

    def do_upsert(self) -> None:
        place, table = self._place(), self._table()
        rows = {self._number(place): 7 for _ in range(8)}
        known = [one for one in self.model.at(place)[table] if one % 3 == PLACES.index(place)]
        rows |= dict.fromkeys(known[:2], 8)
        self.at(place).run(lambda txn: txn.upsert(table, _arrow(rows), "id"))
        self._has(place, table, {**self.model.at(place)[table], **rows})

    def do_unpublished(self) -> None:
        """Commit on the lake by a client that dies before any log has the commit."""
        table, number = self._table(), self._number("")
        rows = {**self.model.main[table], number: 0}
        known = [one for one in rows if one % 3 == 0 and one != number]
        anew = dict.fromkeys(known[:2], 9)
        with self._dying() as lake:
            with lake.transaction(wait="decided") as txn:
                if self.random.random() < 0.5 or not anew:
                    txn.append(table, [{"id": number, "v": 0}])
                else:
                    txn.upsert(table, _arrow({number: 0, **anew}), "id")
                    rows |= anew
        self._has("", table, rows)

    def do_foreign(self) -> None:
        """Let a client without LakeVilla add a row; what waits for the log is then replayed."""
        table, number = self._table(), self._number("")
        if self.random.random() < 0.5:
            self.lake.recover()
        self.place.write(table, _arrow({number: 0}))
        self.lake.absorb([table])
        self._has("", table, {**self.model.main[table], number: 0})

    def do_savepoint(self) -> None:
        """Undo a part of a transaction, and perhaps let another client finish it."""
        table, number = self._table(), self._number("")
        rows, lake = self.model.main[table], self.lake
        with lake.session() as session:
            session.sql("SET durability = 'every_op'")
            session.sql(f"BEGIN; INSERT INTO {table} VALUES ({number}, 5); SAVEPOINT here")
            undone = (
                f"DELETE FROM {table}",
                f"ALTER TABLE {table} RENAME TO other",
                f"INSERT INTO {table} VALUES ({self._number('')}, 6)",
            )
            for statement in self.random.sample(undone, 1):
                session.sql(statement)
            session.sql("ROLLBACK TO here")
            with suppress(lv.TableNotFound):
                session.sql("SELECT count(*) FROM other")
                raise Wrong("a name that a rename gave, and that was undone, is a table")
            if self.random.random() < 0.5:
                session.sql(f"UPDATE {table} SET v = 6 WHERE id = {number}; COMMIT")
                self._has("", table, {**rows, number: 6})
                return
            assert session.transaction is not None
            with open_lake(self.root, self.settings) as other:
                other.resume(session.transaction.id).commit()
            self._has("", table, {**rows, number: 5})

    # -- tables ------------------------------------------------------------------

    def do_table(self) -> None:
        """Make a table, rename it, or drop it; other tables are those of branches."""
        name = self.random.choice(("p0", "p1", "p2"))
        if name not in self.model.main:
            rows = {self._number(""): 0}
            self.lake.create_table(name, _arrow(rows), format=self.format)
            self._has("", name, rows)
        elif self.random.random() < 0.3 and "renamed" not in self.model.main:
            self.lake.rename_table(name, "renamed")
            rows = self.model.main[name]
            self.model.main = changed(without(self.model.main, name), "renamed", rows)
        else:
            self.lake.drop_table(name, delete_data=self.random.random() < 0.5)
            self.model.main = without(self.model.main, name)

    def do_rollback_of_a_table(self) -> None:
        if not self.model.tags:
            raise _Skip
        tag = self.random.choice(sorted(self.model.tags))
        table = self._table()
        if table not in self.model.tags[tag]:
            raise _Skip
        self.lake.table(table).restore(tag)
        self._has("", table, self.model.tags[tag][table])

    # -- refs --------------------------------------------------------------------

    def do_branch(self) -> None:
        name = self.random.choice(PLACES[1:])
        if name in self.model.branches:
            raise _Skip
        at, tables = self._some_state()
        self.lake.branch(name, **at)
        # Its keys are those of the lake, if it is of the lake's newest version.
        keys = self.model.keys if not at else frozenset()
        self.model.branches[name] = Branch(tables, tables, keys)
        self.model.past_of[name] = {}
        self._newest_again(name)

    def do_tag(self) -> None:
        name = f"tag{self.random.randrange(4)}"
        if name in self.model.tags:
            raise _Skip
        at, tables = self._some_state()
        self.lake.tag(name, **at)
        self.model.tags[name] = tables

    def do_merge(self) -> None:
        self._merge(self._branch())

    def _merge(self, name: str) -> None:
        branch = self.model.branches[name]
        delete = self.random.random() < 0.2
        self.lake.merge(name, delete=delete)
        self.model.main = carried(branch.base, branch.now, self.model.main)
        self.model.keys |= branch.own
        self.model.branches[name] = Branch(branch.now, branch.now, branch.keys)
        if delete:
            del self.model.branches[name]
        self._newest_again("")

    def do_rebase(self) -> None:
        name = self._branch()
        branch = self.model.branches[name]
        self.lake.rebase(name)
        now = carried(branch.base, branch.now, self.model.main)
        keys = self.model.keys | branch.keys
        self.model.branches[name] = Branch(self.model.main, now, keys)
        self.model.past_of[name] = {}
        self._newest_again(name)

    def do_delete_ref(self) -> None:
        refs = sorted([*self.model.branches, *self.model.tags])
        if not refs:
            raise _Skip
        name = self.random.choice(refs)
        self.lake.delete_ref(name)
        self.model.branches.pop(name, None)
        self.model.tags.pop(name, None)

    def do_keep(self) -> None:
        refs = sorted([*self.model.branches, *self.model.tags])
        if not refs:
            raise _Skip
        self.lake.keep(self.random.choice(refs))

    def do_clone(self) -> None:
        name, table = CLONES[self.random.randrange(2)], self._table()
        if name in self.model.main:
            raise _Skip
        made = self.lake.clone(table, name)
        self._has("", name, self.model.main[table])
        self.model.clones[name] = False
        before = self.model.past.get((made.version or 0) - 1)
        tags = sorted({f"tag{n}" for n in range(4)} - self.model.tags.keys())
        if before is not None and tags:
            with suppress(lv.VersionNotFound):
                self.lake.tag(tags[0], at=made.version - 1)
                self.model.tags[tags[0]] = before

    def do_clone_is_written(self) -> None:
        name = self._clone()
        number = self._number("")
        with self._dying() if self.random.random() < 0.3 else _same(self.lake) as lake:
            with lake.transaction(wait="decided") as txn:
                if self.random.random() < 0.5:
                    txn.append(name, [{"id": number, "v": 0}])
                    rows = {**self.model.main[name], number: 0}
                else:
                    txn.overwrite(name, [{"id": number, "v": 0}])
                    rows = {number: 0}
        self._has("", name, rows)
        self.model.clones[name] = True

    def do_clone_ends(self) -> None:
        name = self._clone()
        if self.random.random() < 0.5:
            self.lake.delete_ref(name)
            if self.model.clones[name]:
                return  # it goes on as a table of its own
        else:
            self.lake.drop_table(name)
            with suppress(lv.LakeVillaError):
                self.lake.delete_ref(name)
        self.model.main = without(self.model.main, name)
        del self.model.clones[name]

    # -- upkeep ------------------------------------------------------------------

    def do_gc(self) -> None:
        self.lake.gc()

    def do_maintain(self) -> None:
        self.lake.maintain()

    def do_recover(self) -> None:
        self.lake.recover()

    def do_optimize(self) -> None:
        self.lake.table(self._table()).optimize()

    def do_clean(self) -> None:
        self._clean()

    def do_vacuum_dies(self) -> None:
        """A vacuum dies before it deletes; a later one keeps more. Then an old state is tagged."""
        table = self._table()
        with open_lake(self.root, self.settings, on=_Undeleting) as lake:
            lake[table].vacuum(0, dry_run=False, enforce_retention_duration=False)
        if self.random.random() < 0.5:
            self.lake[table].vacuum(dry_run=False)

    def _clean(self) -> None:
        lake = self.lake
        for name in self.model.main:
            with suppress(lv.InvalidOperation):  # one that a clone shows has no log
                lake[name].vacuum(0, dry_run=False, enforce_retention_duration=False)
        lake.gc()

    # -- losses ------------------------------------------------------------------

    def do_lose_head(self) -> None:
        """Lose HEAD, and rebuild it, as the runbook says."""
        self.lake.recover()
        self.close()
        (self.root / "_lakevilla/HEAD.json").unlink()
        with suppress(lv.LakeVillaError):
            self.lake.read(self._table())
        self.close()
        self.lake.recover(rebuild_head=True)
        self.lake.recover(confirm_head=True)
        self._settle_refs()
        self.model.past.clear()
        for past in self.model.past_of.values():
            past.clear()

    def _settle_refs(self) -> None:
        """Delete refs that were deleted before: they return as long as gc has left their bases."""
        known = {*self.model.branches, *self.model.tags, *self.model.clones}
        for ref in self.lake.refs():
            if ref.name not in known:
                with suppress(lv.LakeVillaError):
                    self.lake.delete_ref(ref.name)

    def do_branch_goes_back(self) -> None:
        """Set the HEAD of a branch back, after some client has noted how far the branch was."""
        name = self._branch()
        (head,) = self._head_of(name)
        before = head.read_bytes()
        many = self.random.randint(1, 3)
        for _ in range(many):
            table, number = self._table(), self._number(name)
            self._append(self.lake.on(name), table, number, None)
            self._has(name, table, {**self.model.at(name)[table], number: 0})
        now = head.read_bytes()
        noted = self.random.choice(("gc", "merge", "nothing"))
        if noted == "gc":
            self.lake.gc()
        elif noted == "merge":
            try:
                self._merge(name)
            except (lv.MergeConflict, lv.InvalidOperation):
                noted = "nothing"
            if name not in self.model.branches:
                return
        self.close()
        head.write_bytes(before)
        with open_lake(self.root, self.settings) as lake:
            if self.random.random() < 0.5:
                with suppress(lv.LakeVillaError):
                    lake.protect(name)
            if self.random.random() < 0.3:
                with suppress(lv.LakeVillaError):
                    lake.gc()
            if lake.doctor().ok:
                raise Wrong(f"branch {name} was set back by {many}, and doctor finds no fault")
            if noted != "nothing":
                try:
                    lake.on(name).read(self._table())
                except lv.LakeVillaError:
                    pass
                else:
                    raise Wrong(f"branch {name} was set back by {many}, and is read")
        head.write_bytes(now)
        with open_lake(self.root, self.settings) as lake:
            lake.protect(name, False)

    def do_head_goes_back(self) -> None:
        """Set HEAD back by a commit, clean up, and put it back."""
        head = self.root / "_lakevilla/HEAD.json"
        self.lake.recover()
        before = head.read_bytes()
        table, number = self._table(), self._number("")
        self._append(self.lake, table, number, None)
        self._has("", table, {**self.model.main[table], number: 0})
        self.close()
        now = head.read_bytes()
        head.write_bytes(before)
        with open_lake(self.root, self.settings) as lake:
            for clean in (lake.gc, lake.doctor, lambda: lake[table].vacuum(
                0, dry_run=False, enforce_retention_duration=False)):  # fmt: skip
                with suppress(lv.LakeVillaError):
                    clean()
        head.write_bytes(now)

    def do_copies_are_lost(self) -> None:
        """Lose some of the copies of HEAD, as its directory is restored from a backup."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self.root / "_lakevilla/recent")

    # -- draws -------------------------------------------------------------------

    def _number(self, place: str) -> int:
        self._numbers += 3
        return self._numbers + PLACES.index(place)

    def _place(self) -> str:
        return self.random.choice(["", *self.model.branches, *self.model.branches])

    def _table(self) -> str:
        return self.random.choice(sorted(name for name in self.model.main if name[0] == "t"))

    def _branch(self) -> str:
        if not self.model.branches:
            raise _Skip
        return self.random.choice(sorted(self.model.branches))

    def _clone(self) -> str:
        names = sorted(self.model.clones.keys() & self.model.main.keys())
        if not names:
            raise _Skip
        return self.random.choice(names)

    def _some_state(self) -> tuple[dict[str, Any], Tables]:
        """Return how to name a state, and its tables."""
        draw = self.random.random()
        if draw < 0.3 and self.model.past:
            version = self.random.choice(sorted(self.model.past)[-4:])
            return {"at": version}, self.model.past[version]
        refs = {**self.model.tags, **{n: one.now for n, one in self.model.branches.items()}}
        if draw < 0.5 and refs:
            name = self.random.choice(sorted(refs))
            return {"at": name}, refs[name]
        return {}, self.model.main

    def _append(self, lake: Any, table: str, number: int, key: str | None) -> None:
        lake.run(lambda txn: txn.append(table, [{"id": number, "v": 0}]), idempotency_key=key)

    def _has(self, place: str, table: str, rows: Any) -> None:
        self.model.put(place, changed(self.model.at(place), table, rows))

    def _head_of(self, name: str) -> list[Path]:
        """Return the HEAD of a branch, which its newest commit has changed."""
        with open_lake(self.root, self.settings) as lake:
            table, number = self._table(), self._number(name)
            heads = {
                one: one.read_bytes() for one in self.root.glob("_lakevilla/branches/*/HEAD.json")
            }
            self._append(lake.on(name), table, number, None)
            self._has(name, table, {**self.model.at(name)[table], number: 0})
        return [one for one, body in heads.items() if one.read_bytes() != body]

    @contextmanager
    def _dying(self) -> Iterator[lv.Lake]:
        """Open a client that dies with no log written."""
        logs = ("/_delta_log/", "/metadata/v")

        def closed(key: str) -> bool:
            return any(one in key for one in logs)

        with open_lake(self.root, self.settings, on=lambda inner: Closed(inner, closed)) as lake:
            yield lake


class _Skip(Exception):
    """A step that does not apply to the lake."""


class _Undeleting(WrappedStore):
    def delete(self, key: str) -> None:
        pass


@contextmanager
def _same(lake: lv.Lake) -> Iterator[lv.Lake]:
    yield lake


def _number_of(key: str) -> int:
    return int(key.rpartition(" ")[2])


def _arrow(rows: Any) -> pa.Table:
    return pa.table({"id": list(rows), "v": list(rows.values())}, _SCHEMA)


_SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
_WEIGHTS = {"do_append": 5, "do_append_again": 2, "do_change": 5, "do_branch": 5, "do_merge": 3,
            "do_rebase": 4, "do_gc": 3, "do_clean": 2, "do_tag": 2, "do_delete_ref": 2,
            "do_clone": 2, "do_clone_is_written": 2, "do_clone_ends": 2,
            "do_vacuum_dies": 2, "do_table": 2, "do_branch_goes_back": 3,
            "do_head_goes_back": 2, "do_savepoint": 2}  # fmt: skip
#: After these steps all states are compared.
_DELETING = ("do_clean", "do_gc", "do_lose_head", "do_keep", "do_delete_ref", "do_clone_ends")
#: What a step may be refused with, and then it has changed nothing.
_MAY_REFUSE: dict[str, Any] = {
    "do_branch": (lv.VersionNotFound, lv.InvalidOperation),
    "do_tag": (lv.VersionNotFound, lv.InvalidOperation),
    "do_merge": (lv.MergeConflict, lv.InvalidOperation),
    "do_rebase": (lv.MergeConflict, lv.InvalidOperation),
    "do_table": (lv.InvalidOperation,),
    "do_clone_ends": (lv.InvalidOperation,),
    "do_rollback_of_a_table": (lv.VersionNotFound, lv.InvalidOperation, lv.MergeConflict),
}

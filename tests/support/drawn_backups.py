"""Drawn lakes that are backed up beside other clients, damaged, and restored."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import lakevilla as lv
from lakevilla.api.backup import restore_from
from lakevilla.maintenance.backup.backup import PIN
from lakevilla.store.base import Condition, Failure, Missing, Refused, Store, Stored, WrappedStore
from tests.support.backups import MAIN, Rows, beside, shown
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.stores import Dying


class Meanwhile(WrappedStore):
    """Call ``work`` once, before the write with the number ``at``."""

    def __init__(self, inner: Store, at: int, work: Callable[[], object]) -> None:
        super().__init__(inner)
        self._left = at
        self._work = work

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        self._ask()
        return self.inner.put(key, body, condition)

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        self._ask()
        return self.inner.copy_object(source, key)

    @property
    def happened(self) -> bool:
        return self._left < 0

    def _ask(self) -> None:
        self._left -= 1
        if self._left == -1:
            self._work()


class DrawnBackup:
    """One drawn lake, its backup and its restore; ``fired`` counts what happened to them."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = Random(seed)
        self.format: Any = self.random.choice(["delta", "iceberg"])
        self.place = Place(str(directory / "lake"), format=self.format)
        self.fired: Counter[str] = Counter()
        self.tables: list[str] = []
        self.branches: list[str] = []
        self._names = 0

    def run(self) -> None:
        """Raise ``AssertionError`` if the restored lake is not that of the backup."""
        with self.place.connect() as lake:
            self._furnish(lake)
            for _ in range(self.random.randrange(2, 9)):
                self._change(lake)
        target = beside(self.place.root, "copy")
        if self.random.random() < 0.5:
            self._die(self.place.root, lambda lake: lake.backup(target), "backup died")
        expected = self._back_up(target)
        in_place = self.random.random() < 0.6
        root = self.place.root if in_place else beside(self.place.root, "restored")
        if in_place:
            self._damage()
        if Path(self.place.root).exists():  # else a client would begin another lake there
            with suppress(lv.LakeVillaError), self.place.connect() as lake:
                self._change(lake)

        def restores(lake: lv.Lake) -> object:
            return restore_from(lake._client, target, None, in_place=in_place, verify="hashes")

        if self.random.random() < 0.5:
            self._die(root, restores, "restore died")
        with lv.connect(root) as lake:
            restores(lake)
        self._compare(root, expected, in_place=in_place)

    # -- the lake ---------------------------------------------------------------

    def _furnish(self, lake: lv.Lake) -> None:
        for number in range(self.random.randrange(1, 4)):
            name = self.random.choice([f"t{number}", f"deep/t{number}"])
            partition = ["part"] if self.random.random() < 0.3 else []
            rows = self._rows(self.random.randrange(1, 30))
            lake.create_table(name, rows, format=self.format, partition_by=partition)
            if self.random.random() < 0.4:
                marks = {"delta.enableDeletionVectors": "true"}
                if self.format == "iceberg":
                    marks = {"write.delete.mode": "merge-on-read"}
                self._mark(lake, name, marks)
            self.tables.append(name)

    def _mark(self, lake: lv.Lake, table: str, properties: dict[str, str]) -> None:
        lake.run(lambda txn: txn.alter(table, set_properties=properties))

    def _rows(self, many: int) -> list[dict[str, int]]:
        draw = self.random.randrange
        return [{"id": draw(100), "part": draw(3), "qty": draw(10)} for _ in range(many)]

    def _change(self, lake: lv.Lake, *, refs: bool = True) -> None:
        table = self.random.choice(self.tables)
        where = f"id % {self.random.randrange(2, 9)} = 0"
        kinds = ["append", "update", "delete", "both", "optimize"]
        if refs:
            kinds += ["tag", "branch", "on branch", "clone"]
        kind = self.random.choice(kinds)
        self._names += 1
        rows = self._rows(3)
        match kind:
            case "append":
                lake.run(lambda txn: txn.append(table, rows))
            case "update":
                lake.run(lambda txn: txn.update(table, {"qty": "qty + 1"}, where=where))
            case "delete":
                lake.run(lambda txn: txn.delete(table, where=where))
            case "both":
                other = self.random.choice(self.tables)

                def moves(txn: lv.Transaction) -> None:
                    txn.append(table, rows)
                    txn.delete(other, where=where)

                lake.run(moves)
            case "optimize":
                lake.table(table).optimize()
            case "tag":
                lake.tag(f"tag{self._names}")
            case "branch":
                self.branches.append(lake.branch(f"branch{self._names}").name)
            case "on branch" if self.branches:
                on = lake.on(self.random.choice(self.branches))
                on.run(lambda txn: txn.append(table, rows))
            case "clone" if "/" not in table:
                lake.clone(table, f"clone{self._names}")
        self.fired[kind] += 1

    # -- the backup ---------------------------------------------------------------

    def _back_up(self, target: str) -> dict[str, Rows]:
        """Back up the lake while another client changes it; return what the backup has."""

        def others() -> None:
            with self.place.connect() as other:
                for _ in range(2):
                    self._change(other, refs=False)
                if self.random.random() < 0.5:
                    for table in other.tables():
                        with suppress(lv.InvalidOperation):  # one that a clone shows
                            other.table(table.name).vacuum(
                                0, dry_run=False, enforce_retention_duration=False
                            )
                    other.gc()
                    self.fired["clean-ups beside a backup"] += 1

        with self.place.connect() as lake:
            expected = shown(lake)
            expected = {name: one for name, one in expected.items() if not name.startswith(PIN)}
            expected.pop(MAIN)
            store = Meanwhile(inside(lake).store, self.random.randrange(12), others)
            inside(lake).store = store
            made = lake.backup(target, verify="hashes")
            self.fired["commits beside a backup"] += store.happened
            state = lake.snapshot(version=made.version)
            expected[MAIN] = {
                name: sorted(tuple(row.values()) for row in state.read(name).to_pylist())
                for name in [table.name for table in lake.tables()]
            }
        return expected

    def _die(self, root: str, work: Callable[[lv.Lake], object], what: str) -> None:
        lake = lv.connect(root)
        store = Dying(inside(lake).store, self.random.randrange(60))
        inside(lake).store = store
        with suppress(Dying.Death):
            work(lake)
        self.fired[what] += store.died

    # -- the damage ---------------------------------------------------------------

    def _damage(self) -> None:
        root, table = Path(self.place.root), self.random.choice(self.tables)
        kind = self.random.choice(
            ["none", "HEAD", "home", "file", "log", "table", "root", "foreign"]
        )
        self.fired[f"lost: {kind}"] += 1
        match kind:
            case "HEAD":
                (root / "_lakevilla/HEAD.json").unlink()
            case "home":
                shutil.rmtree(root / "_lakevilla")
            case "file":
                files = sorted((root / table).rglob("lv-*.parquet"))
                self.random.choice(files).unlink()
            case "log":
                shutil.rmtree(
                    root / table / ("metadata" if self.format == "iceberg" else "_delta_log")
                )
            case "table":
                shutil.rmtree(root / table)
            case "root":
                shutil.rmtree(root)
            case "foreign" if self.format == "delta":
                with suppress(Exception):  # deltalake writes no deletion vectors
                    self.place.write(table, [{"id": 1, "part": 1, "qty": 1}])

    def _compare(self, root: str, expected: dict[str, Rows], *, in_place: bool) -> None:
        with lv.connect(root) as lake:
            found = shown(lake, among=expected)
            branches = set(self.branches) if in_place else set()  # they may have gone on
            for name in expected.keys() - branches:
                for table, rows in expected[name].items():
                    assert found[name].get(table) == rows, (name, table)
            lake.recover(confirm_head=True)
            lake.gc()
            again = shown(lake, among=expected)
            assert again == found
            broken = [one for one in lake.verify().findings if one.severity == "error"]
            assert not broken, broken

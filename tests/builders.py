"""Lakes and tables for tests: where they are, how they are filled, how others see them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from lakevilla.store.base import (
    Condition,
    Failure,
    GetOutcome,
    Missing,
    ObjectInfo,
    Refused,
    Store,
    Stored,
    Token,
)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """A lake's root and the options that reach it; picklable, for tests with processes."""

    root: str
    storage_options: dict[str, str] = field(default_factory=dict)
    format: Literal["delta", "iceberg"] = "delta"

    def connect(self, **options: Any) -> lv.Lake:
        """A client of its own: no caches shared with others."""
        return lv.connect(self.root, storage_options=self.storage_options or None, **options)

    @property
    def seen_by_others(self) -> bool:
        """Whether clients without LakeVilla can reach it."""
        return not self.root.startswith("memory:")

    def uri(self, table: str) -> str:
        return f"{self.root}/{table}"

    def write(self, table: str, rows: pa.Table | Sequence[Row], **options: Any) -> None:
        """Create or append to a table as another client: deltalake, or pyiceberg."""
        data = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows))
        if self.format == "iceberg":
            identifier = tuple(table.split("/"))
            self.catalog().create_table_if_not_exists(identifier, data.schema).append(data)
            return
        options = {"mode": "append", **options}
        write_deltalake(
            self.uri(table), data, storage_options=self.storage_options or None, **options
        )

    def delta(self, table: str, version: int | None = None) -> DeltaTable:
        """The table as deltalake opens it now."""
        return DeltaTable(
            self.uri(table), version=version, storage_options=self.storage_options or None
        )

    def catalog(self) -> ObjectStoreCatalog:
        """The Iceberg tables of the place as pyiceberg opens them."""
        return ObjectStoreCatalog("tests", warehouse=self.root)

    def seen(self, table: str, version: int | None = None) -> list[dict[str, Any]]:
        """The rows that another client reads."""
        if self.format == "iceberg":
            assert version is None, "pyiceberg knows snapshots, not versions"
            opened = self.catalog().load_table(tuple(table.split("/")))
            return in_order(opened.scan().to_arrow())
        return in_order(self.delta(table, version).to_pyarrow_table())


def make_place(kind: str, request: pytest.FixtureRequest) -> Place:
    """A fresh lake of one kind: ``memory``, ``local``, ``s3``, or ``iceberg``.

    The last is a local one whose tables are made as Iceberg tables unless a test says otherwise.
    """
    if kind == "iceberg":
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        for owner in (lv.Lake, lv.Transaction):
            patch.setitem(owner.create_table.__kwdefaults__, "format", "iceberg")
        return Place(str(request.getfixturevalue("tmp_path") / "lake"), format="iceberg")
    if kind == "memory":
        return Place(f"memory://{request.node.nodeid.replace('/', '-')}")
    if kind == "local":
        return Place(str(request.getfixturevalue("tmp_path") / "lake"))
    server = request.getfixturevalue("s3_server")
    return Place(request.getfixturevalue("s3_root"), server.storage_options)


def skip_iceberg(request: pytest.FixtureRequest) -> None:
    """Leave out what Delta tables alone have."""
    if "iceberg" in request.node.callspec.id:
        pytest.skip("of Delta tables alone")


def skip_constraints(request: pytest.FixtureRequest) -> None:
    """Leave out what adds a constraint to an Iceberg table: it has none."""
    case = request.node.callspec.id
    if "iceberg" in case and "constraint" in case:
        pytest.skip("Iceberg has no constraints")


def fill(place: Place, tables: Mapping[str, Sequence[Row]]) -> None:
    """Make tables, by another client where one reaches the place, else in one transaction."""
    if place.seen_by_others:
        for name, rows in tables.items():
            place.write(name, rows)
        return
    with place.connect() as lake, lake.transaction() as txn:
        for name, rows in tables.items():
            txn.create_table(name, pa.Table.from_pylist(list(rows)))


def accounts(count: int, balance: int = 100) -> list[dict[str, Any]]:
    """``count`` rows of ``id`` and ``balance``."""
    return [{"id": number, "balance": balance} for number in range(count)]


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows sorted by all of their columns that sort."""
    return sorted(rows.to_pylist(), key=lambda row: [repr(value) for value in row.values()])


def bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows, each as often as it is there, in no order."""
    return Counter(tuple(row.values()) for row in table.to_pylist())


def values(rows: pa.Table, column: str = "id") -> list[Any]:
    return sorted(rows[column].to_pylist())


class WrappedStore:
    """A store that passes every request on; the base of those that do more."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        return self.inner.get(key, known, byte_range)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        return self.inner.put(key, body, condition)

    def put_file(self, key: str, path: str) -> Stored | Failure:
        return self.inner.put_file(key, path)

    def head(self, key: str) -> ObjectInfo | Missing | Failure:
        return self.inner.head(key)

    def list(self, prefix: str, start_after: str | None = None) -> list[ObjectInfo] | Failure:
        return self.inner.list(prefix, start_after)

    def delete(self, key: str) -> Failure | None:
        return self.inner.delete(key)

    def local_path(self, key: str) -> str | None:
        return self.inner.local_path(key)


class InterruptedStore(WrappedStore):
    """Calls ``meanwhile`` once, before the first PUT of a key for which ``before`` is true."""

    def __init__(
        self, inner: Store, before: Callable[[str], bool], meanwhile: Callable[[], object]
    ) -> None:
        super().__init__(inner)
        self._before = before
        self._meanwhile: Callable[[], object] | None = meanwhile
        self._lock = threading.Lock()

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if self._before(key):
            with self._lock:
                meanwhile, self._meanwhile = self._meanwhile, None
                if meanwhile is not None:
                    meanwhile()
        return self.inner.put(key, body, condition)

    @property
    def happened(self) -> bool:
        return self._meanwhile is None


class Dying(WrappedStore):
    """The process dies after so many writes: none takes effect from then on, and nothing answers.

    Attributes
    ----------
    died : bool
        Whether it came to that.
    """

    class Death(BaseException):
        """What stands for the end of the process."""

    def __init__(self, inner: Store, writes: int) -> None:
        super().__init__(inner)
        self._left = writes
        self._lock = threading.Lock()
        self.died = False

    def _ask(self, *, writing: bool) -> None:
        with self._lock:
            self.died = self.died or (writing and self._left == 0)
            if self.died:
                raise Dying.Death
            self._left -= writing

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        self._ask(writing=False)
        return self.inner.get(key, known, byte_range)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        self._ask(writing=True)
        return self.inner.put(key, body, condition)

    def put_file(self, key: str, path: str) -> Stored | Failure:
        self._ask(writing=True)
        return self.inner.put_file(key, path)

    def delete(self, key: str) -> Failure | None:
        self._ask(writing=True)
        return self.inner.delete(key)


@contextmanager
def interrupted(
    lake: lv.Lake, before: Callable[[str], bool], meanwhile: Callable[[], object]
) -> Iterator[None]:
    """Within the block the first PUT that ``before`` names waits until ``meanwhile`` has run."""
    inner = lake.runner.store
    store = InterruptedStore(inner, before, meanwhile)
    lake.runner.store = store
    try:
        yield
    finally:
        lake.runner.store = inner
    assert store.happened, "the moment never came"


def is_head(key: str) -> bool:
    return key == "_lakevilla/HEAD.json"


def is_entry(table: str) -> Callable[[str], bool]:
    """Whether a key is a log entry of the table, or a metadata file."""
    logs = (f"{table}/_delta_log/", f"{table}/metadata/v")
    return lambda key: key.startswith(logs) and key.endswith(".json")


def kinds(events: Iterable[lv.Event]) -> list[str]:
    return [event.kind for event in events]


def contents(root: str | Path) -> dict[str, bytes]:
    """Every object of a lake in a directory, by key: what must not change when a verb raises."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(Path(root).rglob("*"))
        if path.is_file() and not path.name.startswith(".lakevilla-")
    }


def add(txn: lv.Transaction, row: int, amount: int) -> None:
    """Add to a balance: a write that can be redone."""
    txn.update("bank", {"balance": f"balance + {amount}"}, where=f"id = {row}")


class NoEntries(WrappedStore):
    """Refuses log entries of one table: what is decided there is left to others to publish."""

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if is_entry("bank")(key):
            return Failure("not now", ambiguous=False, permanent=True)
        return super().put(key, body, condition)


def decide_and_leave(place: Place) -> str:
    """A commit over both tables that its owner could not publish in ``bank``; its id."""
    with place.connect() as lake:
        lake.runner.store = NoEntries(lake.runner.store)
        with lake.transaction() as txn:
            add(txn, 1, 5)
            txn.append("other", [{"id": 8, "balance": 8}])
        assert txn.result is not None
        assert txn.result.versions == {"bank": None, "other": 1}
    return txn.id

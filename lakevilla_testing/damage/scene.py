"""A lake a month old that has an object of each kind, and the older versions of its objects."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from lakevilla.api.client.client import LakeClient
from lakevilla.api.lake import Lake
from lakevilla.clock import Clock, SystemClock
from lakevilla.global_log import head, leaves
from lakevilla.settings import Settings
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.base import Condition, Failure, Match, Refused, Store, Stored, WrappedStore
from lakevilla.transaction.state.values import Feature

Format = Literal["delta", "iceberg"]
#: Whether clients replace HEAD, or the store only creates, so that HEAD is a log.
HeadForm = Literal["replaced", "log"]
#: The files of a lake, by key.
Files = dict[str, bytes]

DAY = 24 * 3600.0
#: The age of everything in a scene.
AGE_SECONDS = 30 * DAY
HEAD = "_lakevilla/HEAD.json"

#: Clients that make the scene clean nothing up by age.
_KEEPING = Settings(
    max_age_seconds=300 * DAY,
    outcome_retention_seconds=300 * DAY,
    durable_files=False,
    in_memory_file_limit_bytes=0,
    retry_base_seconds=0.001,
)
QUEUED = Feature.R | Feature.CT | Feature.I


class OnlyCreates(WrappedStore):
    """A store without ``If-Match``, on which a new lake's HEAD becomes a log."""

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if isinstance(condition, Match):
            return Failure("501 NotImplemented", ambiguous=False, permanent=True)
        return self.inner.put(key, body, condition)


class _Alone(LakeClient):
    """A client that shares no cache with others of its process."""

    def _cached_as(self) -> Hashable:
        return object()


class WrongClock(SystemClock):
    """A clock that is so many seconds ahead of the machine's, which is the store's."""

    def __init__(self, ahead_seconds: float) -> None:
        self.ahead_seconds = ahead_seconds

    def now(self) -> float:
        return super().now() + self.ahead_seconds


@dataclass
class Scene:
    """A lake's files, as they are and as they were after each step of its making.

    Attributes
    ----------
    root : Path
        Where the lake is. Its objects name this place, so each run puts its files there again.
    steps : list of Files
        All files after each step; the last are those of the lake.
    saved : str
        The id of a transaction that was saved, in its place in a queue; where HEAD is a log no
        transaction is saved.
    """

    root: Path
    format: Format
    head: HeadForm = "replaced"
    steps: list[Files] = field(default_factory=list)
    saved: str = ""

    @property
    def files(self) -> Files:
        return self.steps[-1]

    @property
    def name(self) -> str:
        """The scene in the words of a command: ``python -m lakevilla_testing.damage``."""
        return self.format if self.head == "replaced" else f"{self.format} --head {self.head}"

    def open(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        on: Callable[[Store], Store] | None = None,
    ) -> Lake:
        """Return a client that shares no cache with any other; ``on`` wraps its store."""

        def wraps(store: Store) -> Store:
            inner = OnlyCreates(store) if self.head == "log" else store
            return inner if on is None else on(inner)

        return open_lake(self.root, settings, clock=clock, on=wraps)

    @property
    def pending(self) -> str:
        """The key of the object of the commit that is decided, and not in all logs."""
        return max(key for key in self.files if key.startswith("_lakevilla/commits/"))

    def older(self, key: str) -> list[bytes]:
        """Return the older versions of an object, the oldest first."""
        bodies = [files[key] for files in self.steps if key in files]
        return [body for body in dict.fromkeys(bodies) if body != bodies[-1]]

    def in_order(self) -> list[str]:
        """Return the keys of all objects, in the order in which they were stored."""
        first = {key: step for step, files in reversed([*enumerate(self.steps)]) for key in files}
        return sorted(self.files, key=lambda key: (first[key], key))

    def lay_out(self) -> None:
        """Make the lake's directory as it was when the scene was ready, a month ago."""
        shutil.rmtree(self.root, ignore_errors=True)
        put_files(self.root, self.files)


def files_of(root: Path) -> Files:
    """Return all files below a root that clients see."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def put_files(root: Path, files: Files) -> None:
    """Write files with the times of a month ago."""
    when = SystemClock().now() - AGE_SECONDS
    for key, body in files.items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        os.utime(path, (when, when))


@contextmanager
def small_objects() -> Iterator[None]:
    """Let HEAD hold few commits and tables, so that a small lake has pages and leaves."""
    before = head.PAGE_LENGTH, head.COMMITS_IN_HEAD, leaves.INLINE_BYTES, leaves.LEAF_BYTES
    head.PAGE_LENGTH, head.COMMITS_IN_HEAD = 4, 8
    leaves.INLINE_BYTES, leaves.LEAF_BYTES = 200, 400
    try:
        yield
    finally:
        head.PAGE_LENGTH, head.COMMITS_IN_HEAD = before[:2]
        leaves.INLINE_BYTES, leaves.LEAF_BYTES = before[2:]


def open_lake(
    root: Path,
    settings: Settings,
    *,
    clock: Clock | None = None,
    on: Callable[[Store], Store] | None = None,
) -> Lake:
    """Return a client that shares no cache with any other; ``on`` wraps its store."""
    store = open_store(str(root), settings=settings)
    client = _Alone(store.root.uri, store, settings=settings, clock=clock)
    if on is not None:
        client.runner.store = on(client.runner.store)
    return Lake(client)


class _NoEntries(WrappedStore):
    """Refuse log entries of a table: the store of a client that dies when it has decided."""

    def __init__(self, inner: Store, table: str) -> None:
        super().__init__(inner)
        self._logs = f"{table}/_delta_log/", f"{table}/metadata/v"

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if key.startswith(self._logs):
            return Failure("turned down", ambiguous=False, permanent=True)
        return self.inner.put(key, body, condition)


def make_scene(root: Path, format: Format, head: HeadForm = "replaced") -> Scene:
    """Make a lake with tables, a tag, branches, a clone, keys, a queue, and a commit in no log."""
    scene = Scene(root, format, head)

    def step(work: Callable[[Lake], object], on: Callable[[Store], Store] | None = None) -> None:
        with scene.open(_KEEPING, clock=WrongClock(-AGE_SECONDS), on=on) as lake:
            work(lake)
        scene.steps.append(files_of(root))

    def appends(table: str, *ids: int, key: str | None = None) -> Callable[[Lake], object]:
        rows = [{"id": number, "v": number % 2} for number in ids]
        return lambda lake: lake.run(lambda txn: txn.append(table, rows), idempotency_key=key)

    def on_branch(work: Callable[[Lake], object]) -> Callable[[Lake], object]:
        return lambda lake: work(lake.on("etl"))

    def saves(lake: Lake) -> None:
        txn = lake.transaction(QUEUED)
        txn.take_turn("sales/b")
        txn.append("sales/b", [{"id": 50, "v": 0}])
        txn.save()
        scene.saved = txn.id

    def creates(lake: Lake) -> None:
        for name in ("a", "sales/b", "gone", "wiped"):
            lake.create_table(name, [{"id": 1, "v": 1}, {"id": 2, "v": 0}], format=format)
        lake.register("revenue", "sales/b")

    with small_objects():
        step(creates)
        step(appends("a", 3, 4))
        step(lambda lake: lake.drop_table("wiped", delete_data=True))
        step(lambda lake: lake.tag("closing", metadata={"year": "2026"}))
        step(lambda lake: lake.branch("etl"))
        step(on_branch(appends("a", 100, 101)))
        step(lambda lake: lake.clone("a", "copies/a", "closing"))
        step(appends("copies/a", 300))
        step(appends("a", 5, 6, key="day 1"))
        step(lambda lake: lake.run(lambda txn: txn.delete("a", "id = 1")))
        step(lambda lake: lake.gc())
        step(lambda lake: lake.drop_table("gone"))
        step(on_branch(lambda lake: lake.run(lambda txn: txn.delete("a", "id = 2"))))
        step(lambda lake: lake.maintain())
        step(appends("sales/b", 7))
        step(lambda lake: lake.table("a").optimize())
        step(on_branch(appends("sales/b", 102)))
        step(lambda lake: lake.keep("closing"))
        if head == "replaced":
            step(saves)
        step(
            lambda lake: lake.run(
                lambda txn: [txn.append(name, [{"id": 8, "v": 0}]) for name in ("a", "sales/b")]
            ),
            on=lambda store: _NoEntries(store, "a"),
        )
    return scene

"""Every backend behind the one store interface: the same tests must pass on all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from obstore.exceptions import NotSupportedError
from obstore.store import MemoryStore

from lakevilla.clock import SystemClock
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.backends.object_store import Capabilities, ObstoreBackend, open_store
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.location import root_location
from lakevilla.store.runner import Runner
from tests.fixtures.servers import SERVERS

BACKENDS = ["memory", "memory as Azure", "local", *SERVERS]


@dataclass(frozen=True)
class Place:
    """The address of a store, by which another process can open it, too."""

    root: str
    storage_options: dict[str, str] = field(default_factory=dict)

    def open(self) -> LakeStore:
        return open_store(self.root, self.storage_options)


class LimitedPlace(Place):
    """A store that lacks what Azure lacks: ranges from the end, copies, and some names."""

    def open(self) -> LakeStore:
        limits = Capabilities(suffix_ranges=False, copied_bytes=0, literal_names=False)
        store = _Limited()
        return LakeStore(
            root_location(self.root), lambda _: ObstoreBackend(store, capabilities=limits)
        )


class _Limited(MemoryStore):
    def get(self, path: str, *, options: Any = None) -> Any:
        if isinstance((options or {}).get("range"), dict):
            raise NotSupportedError("suffix ranges are not supported")
        return super().get(path, options=options)

    def copy(self, from_: str, to: str, *, overwrite: bool = True) -> None:
        raise NotSupportedError("copies are not supported")


def capabilities(store: LakeStore) -> Capabilities:
    """Return what the store at a lake's root says that it can do."""
    (backend,) = store._backends.values()
    return backend.capabilities if isinstance(backend, ObstoreBackend) else Capabilities()


def make_place(backend: str, request: pytest.FixtureRequest) -> Place:
    if backend.startswith("memory"):
        return (Place if backend == "memory" else LimitedPlace)("memory://")
    if backend == "local":
        return Place(str(request.getfixturevalue("tmp_path") / "lake"))
    server = request.getfixturevalue("servers")[backend]
    return Place(server.new_root(), server.storage_options)


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture(params=["local", *SERVERS])
def shared_place(request: pytest.FixtureRequest) -> Place:
    """Return a place that other processes can reach."""
    return make_place(request.param, request)


@pytest.fixture
def store(place: Place) -> LakeStore:
    return place.open()


@pytest.fixture
def ids() -> Ids:
    return Ids(SystemClock())


@pytest.fixture
def runner(store: LakeStore, ids: Ids) -> Runner:
    return Runner(store, ids, Settings())

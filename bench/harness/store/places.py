"""Where the lakes of a run lie: a directory of this machine, or an S3 server behind a latency."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore
from obstore.store import LocalStore, ObjectStore, S3Store

from bench.harness.parameters import WrongParameter
from bench.harness.results import by_verb
from bench.harness.store.latency_proxy import PROFILES, LatencyProxy, latency_proxy
from bench.harness.store.server import ministack

#: A directory of this machine, without a server in between.
LOCAL = "local"
NAMES = (LOCAL, *PROFILES)


@dataclass
class Places:
    """New, empty roots, all on one store."""

    profile: str
    directory: Path
    proxy: LatencyProxy | None
    _ends: ExitStack
    quick: bool = False
    _made: int = field(default=0)
    _kept: dict[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str]:
        """The storage options of every root."""
        return {} if self.proxy is None else self.proxy.storage_options

    @property
    def direct_options(self) -> dict[str, str]:
        """The same, past the latency: for what is made before anything is measured."""
        if self.proxy is None:
            return {}
        return {**self.proxy.storage_options, "AWS_ENDPOINT_URL": self.proxy.upstream}

    def root(self, system: str) -> str:
        """A root that nobody has used."""
        self._made += 1
        name = f"{self._made:04}-{''.join(c if c.isalnum() else '-' for c in system)}"
        if self.proxy is not None:
            return f"s3://lake/{name}"
        path = self.directory / name
        path.mkdir()
        return str(path)

    def objects(self, root: str) -> ObjectStore:
        """The objects below a root, past the latency."""
        if self.proxy is None:
            return LocalStore(root)
        options = self.options
        return S3Store.from_url(
            root,
            config={
                "access_key_id": options["AWS_ACCESS_KEY_ID"],
                "secret_access_key": options["AWS_SECRET_ACCESS_KEY"],
                "region": options["AWS_REGION"],
            },
            endpoint=self.proxy.upstream,
            client_options={"allow_http": True},
        )

    def stored_bytes(self, root: str) -> int:
        """The bytes of all objects below a root."""
        listed = obstore.list(self.objects(root))
        return sum(int(found["size"]) for batch in listed for found in batch)

    def discard(self, root: str) -> None:
        """Delete what is in a root that was made here: a server keeps it in its memory."""
        if self.proxy is None:
            shutil.rmtree(root, ignore_errors=True)
            return
        store = self.objects(root)
        for batch in obstore.list(store):
            obstore.delete(store, [found["path"] for found in batch])

    def file(self, name: str) -> Path:
        """A file of this machine, for a catalog."""
        self._made += 1
        return self.directory / f"{self._made:04}-{name}"

    def kept(self, name: str, make: Callable[[], Any], end: Callable[[Any], object]) -> Any:
        """What is made once for a run, when it is first asked for, and ended with it."""
        if name not in self._kept:
            self._kept[name] = make()
            self._ends.callback(end, self._kept[name])
        return self._kept[name]

    def count(self) -> dict[str, int]:
        """Requests by verb since ``reset``; none are seen in a directory."""
        return {} if self.proxy is None else by_verb(self.proxy.requests)

    def moved(self) -> dict[str, int]:
        """Bytes of bodies since ``reset``; none are seen in a directory."""
        return {} if self.proxy is None else dict(self.proxy.moved)

    def count_metadata(self) -> dict[str, int]:
        """Of these, the requests that are not for rows."""
        return {} if self.proxy is None else by_verb(self.proxy.metadata)

    def reset(self) -> None:
        if self.proxy is not None:
            self.proxy.reset()


def check_profile(profile: str) -> None:
    """Refuse a profile that there is not."""
    if profile not in NAMES:
        raise WrongParameter(f"no profile {profile!r}: there are {', '.join(NAMES)}")


@contextmanager
def places(profile: str, *, quick: bool = False) -> Iterator[Places]:
    """Roots on a profile while the block lasts; what was made there goes with it.

    ``quick`` tells peers that the run is short, so that it does not pay to warm up for long.
    """
    check_profile(profile)
    with (
        tempfile.TemporaryDirectory(prefix="lakevilla-bench-") as directory,
        ExitStack() as ends,
    ):
        proxy = None
        if profile != LOCAL:
            endpoint = ends.enter_context(ministack())
            proxy = ends.enter_context(latency_proxy(endpoint, profile))
        yield Places(profile, Path(directory), proxy, ends, quick)

"""A store of the user's own in place of the server that a run starts: a bucket, or a directory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import obstore
from obstore.store import LocalStore, ObjectStore, from_url

from bench.harness.parameters import WrongParameter
from bench.harness.store.places import Places

if TYPE_CHECKING:
    from obstore.store import S3Config

#: DuckLake and pyiceberg have no environment to look at: without these they can't reach it.
_S3_KEYS = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")


@dataclass(frozen=True, slots=True)
class OwnStore:
    """Where it is, and the storage options that deltalake takes."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = [key for key in _S3_KEYS if key not in self.options]
        if self.uri.startswith("s3://") and missing:
            raise WrongParameter(f"--store {self.uri} needs --option {missing[0]}=...")


@dataclass
class _Roots(Places):
    """Roots below a place of the user's."""

    store: OwnStore = field(default_factory=lambda: OwnStore(""))
    made: list[str] = field(default_factory=list)

    @property
    def options(self) -> dict[str, str]:
        return dict(self.store.options)

    @property
    def direct_options(self) -> dict[str, str]:
        return dict(self.store.options)

    def root(self, system: str) -> str:
        name = Path(super().root(system)).name
        root = f"{self.store.uri.rstrip('/')}/{name}"
        if "://" not in root:
            os.mkdir(root)
        self.made.append(root)
        return root

    def objects(self, root: str) -> ObjectStore:
        return LocalStore(root) if "://" not in root else _opened(root, self.store.options)

    def discard(self, root: str) -> None:
        if "://" not in root:
            shutil.rmtree(root, ignore_errors=True)
        else:
            handle = self.objects(root)
            for batch in obstore.list(handle):
                obstore.delete(handle, [found["path"] for found in batch])


@contextmanager
def on_own_store(store: OwnStore) -> Iterator[Places]:
    """Roots below it while the block lasts; what was made there goes with it.

    Raises
    ------
    WrongParameter
        Something is there already.
    """
    if "://" not in store.uri:
        if not os.path.isdir(store.uri):
            raise WrongParameter(f"--store {store.uri} is no directory: make it, empty")
        found = sorted(os.listdir(store.uri))
    else:
        batches = obstore.list(_opened(store.uri, store.options), chunk_size=1)
        found = [one["path"] for batch in batches for one in batch][:1]
    if found:
        raise WrongParameter(
            f"--store {store.uri} is not empty, it has {found[0]}: choose a place that is, for a "
            "run deletes what it has made"
        )
    with (
        tempfile.TemporaryDirectory(prefix="lakevilla-bench-") as directory,
        ExitStack() as ends,
    ):
        roots = _Roots(store.uri, Path(directory), None, ends, store=store)
        try:
            yield roots
        finally:
            for root in roots.made:
                roots.discard(root)


def _opened(uri: str, options: Mapping[str, str]) -> ObjectStore:
    config = {key.lower(): value for key, value in options.items()}
    allow_http = config.pop("aws_allow_http", config.pop("allow_http", "false")) == "true"
    # The options are the user's, of whatever store: that they are of S3 is for the types alone.
    of_store = cast("S3Config", config)
    return from_url(uri, config=of_store, client_options={"allow_http": allow_http})

"""The configuration of the destination: the lake's root, and what reaches it."""

# dlt reads the annotations of a specification when it resolves it, so they are no text here.

import dataclasses
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Dict, Optional  # noqa: UP035 (dlt resolves these generics alone)

import pyarrow as pa
from dlt.common.configuration import configspec
from dlt.common.destination.client import DestinationClientDwhConfiguration
from dlt.common.utils import digest128

from lakevilla.api.connecting import connect
from lakevilla.api.lake import Lake

__all__ = ["LakeVillaClientConfiguration"]


@configspec
class LakeVillaClientConfiguration(DestinationClientDwhConfiguration):
    """The fields of ``[destination.lakevilla]`` in dlt's configuration and secrets."""

    destination_type: str = dataclasses.field(
        default="lakevilla", init=False, repr=False, compare=False
    )
    root: str = None  # type: ignore[assignment]  # dlt raises an error that names it
    storage_options: Optional[Dict[str, Any]] = None  # noqa: UP006, UP045
    branch: Optional[str] = None  # noqa: UP045

    def lake(self) -> Lake[pa.Table]:
        """Return the lake; all clients of one process share it."""
        return _lake(self.root, self.branch, _text_of(self.storage_options))

    def data_location(self) -> str:
        """Return what identifies the lake among others."""
        return self.root if self.branch is None else f"{self.root}#{self.branch}"

    def fingerprint(self) -> str:
        """Return a digest of the lake's place, which dlt's telemetry sends."""
        return str(digest128(self.root)) if self.root else ""

    def __str__(self) -> str:
        return self.data_location() if self.root else ""


def _text_of(options: Mapping[str, Any] | None) -> str:
    return json.dumps(dict(options or {}), sort_keys=True)


@lru_cache(maxsize=16)
def _lake(root: str, branch: str | None, options: str) -> Lake[pa.Table]:
    lake = connect(root, storage_options=json.loads(options) or None)
    return lake if branch is None else lake.on(branch)

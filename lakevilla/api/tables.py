"""Tables as the lake tells of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

__all__ = ["Capabilities", "Table"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table at one moment.

    ``version`` is the log version that any other reader can be given to see the
    same state; None where no log version equals it (a commit is still to be
    published). ``snapshot_id`` is None for Delta.
    """

    name: str
    uri: str
    format: Literal["delta"]
    version: int | None
    snapshot_id: int | None
    schema: pa.Schema
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    guarded: bool


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What is guaranteed on a table, and what is not.

    Attributes
    ----------
    guarded : bool
    other_writers : {"refused", "reconciled"}
        What becomes of a client without LakeVilla that writes the table.
    guarantees : tuple of str
        In words.
    """

    guarded: bool
    other_writers: Literal["refused", "reconciled"]
    guarantees: tuple[str, ...]

    @classmethod
    def of(cls, table: Table) -> Capabilities:
        """The guarantees of design section 10 for this table."""
        common = (
            "transactions with Feature.I are serializable and linearizable among each other",
            "readers of the table alone see each commit whole",
        )
        if table.guarded:
            return cls(
                True,
                "refused",
                (*common, "no other client can commit between validation and publishing"),
            )
        return cls(
            False,
            "reconciled",
            (
                *common,
                "a foreign commit has its place once a transaction absorbs it",
                "a foreign update between validation and publishing is reconciled and reported "
                "as ForeignConflict; `guard` closes that window",
            ),
        )

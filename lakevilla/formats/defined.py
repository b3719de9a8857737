"""What a table's definition says of each of its states, in either format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

import msgspec
from blake3 import blake3

from lakevilla.formats.layout import Layout


class Definition(Protocol):
    """What stays from state to state until somebody alters the table."""

    location: str
    table: str

    @property
    def table_id(self) -> str: ...

    @property
    def contract(self) -> str: ...

    @property
    def layout(self) -> Layout: ...

    def check_writable(self) -> None: ...


def contract_digest(asked: Mapping[str, object]) -> str:
    """A short name of what is asked of data files: the same if, and only if, the same is asked."""
    return blake3(msgspec.json.encode(asked, order="deterministic")).hexdigest(length=8)


D = TypeVar("D", bound=Definition)


class DefinedSnapshot(Generic[D]):
    """The part of ``formats.base.TableSnapshot`` that its definition answers."""

    __slots__ = ()
    definition: D

    @property
    def location(self) -> str:
        return self.definition.location

    @property
    def table(self) -> str:
        return self.definition.table

    @property
    def table_id(self) -> str:
        return self.definition.table_id

    @property
    def contract(self) -> str:
        return self.definition.contract

    @property
    def layout(self) -> Layout:
        return self.definition.layout

    def check_writable(self) -> None:
        self.definition.check_writable()

    def forget_files(self) -> None:
        """Nothing is kept."""

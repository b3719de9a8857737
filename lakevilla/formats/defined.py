"""What a table's definition says of each of its states, in either format."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from lakevilla.formats.layout import Layout


class Definition(Protocol):
    """What stays from state to state until somebody alters the table."""

    location: str
    table: str

    @property
    def table_id(self) -> str: ...

    @property
    def layout(self) -> Layout: ...

    def check_writable(self) -> None: ...


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
    def layout(self) -> Layout:
        return self.definition.layout

    def check_writable(self) -> None:
        self.definition.check_writable()

"""Relations: a schema is a directory of the lake, and a lake is one database without a name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.relation import ComponentName


@dataclass(frozen=True, eq=False, repr=False)
class LakeVillaRelation(BaseRelation):
    """A table or view of the lake, or, without a schema, a temporary table of its session.

    dbt keeps the database ``lake`` for its catalog; no statement names it.
    """

    require_alias: bool = False

    def _render_iterator(self) -> Iterator[tuple[ComponentName | None, str | None]]:
        for name, part in super()._render_iterator():
            if name != ComponentName.Database:
                yield name, part

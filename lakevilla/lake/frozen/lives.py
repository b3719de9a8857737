"""Which lives of branches are owned by a ref; what others have left is nobody's."""

from __future__ import annotations

from dataclasses import dataclass

from lakevilla.global_log.head import Head
from lakevilla.global_log.refs import made_of_life
from lakevilla.global_log.repo import load_refs
from lakevilla.lake.file_names import branch_of
from lakevilla.store.effects import Program


@dataclass(frozen=True, slots=True)
class BranchLives:
    """The lives that the refs of a HEAD own, and how far HEAD has come."""

    owned: frozenset[str]
    replacement: int

    @classmethod
    def of(cls, head: Head | None) -> Program[BranchLives]:
        """Those of a HEAD, whose refs are fetched for it; of no HEAD, none that are known."""
        yield from load_refs(head)
        if head is None:
            return cls(frozenset(), -1)
        owned = {life for entry in head.refs.values() for life in entry.lives}
        return cls(frozenset(owned), head.replacement)

    def is_dead(self, life: str) -> bool:
        """Whether no branch owns a life, nor ever will: HEAD has come past what it was made for."""
        made = made_of_life(life)
        return made is not None and made <= self.replacement and life not in self.owned

    def owns(self, path: str) -> bool:
        """Whether a file, by its path in a table, was written on a branch that may be alive."""
        life = branch_of(path)
        return life is not None and not self.is_dead(life)

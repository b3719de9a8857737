"""Rebasing branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Literal

from lakevilla.api.applying.arguments import keys_by_location, settled
from lakevilla.api.client.client import LakeClient
from lakevilla.api.frame import Frame
from lakevilla.api.refs import ref_of
from lakevilla.branches.moved import Wanted
from lakevilla.branches.rebase import rebase_branch
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.refs import MAIN
from lakevilla.results import Ref
from lakevilla.settings import shown

__all__ = ["Rebases"]


class Rebases(Generic[Frame]):
    """What a lake does with branches that are behind."""

    _client: LakeClient

    def rebase(
        self,
        branch: str,
        *,
        keys: Mapping[str, str | Sequence[str]] | None = None,
        on_conflict: Literal["error", "ours", "theirs"] = "error",
        on_equal: Literal["conflict", "keep"] = "conflict",
    ) -> Ref:
        """Let a branch go on from the lake as it is now, with what was done on it on top.

        The lake is not changed. On the branch is then what was committed to the lake since it was
        made, tables that were made since among it, and what was done on the branch since it was
        made, or last merged, as one commit. No data is copied, and no row is read, where the
        lake still has the files that the branch has replaced. Else rows are compared.

        Lakes that ``on`` has given go on there. A transaction that is open on the branch raises
        ``ConflictError``, as if others had written its tables; ``run`` calls its function again.

        Parameters
        ----------
        branch : str
        keys : Mapping, optional
            For a table the columns that tell its rows apart. Then only rows that both sides have
            changed are in conflict.
        on_conflict : {"error", "ours", "theirs"}
            ``"ours"`` makes a table in conflict what it is on the lake, ``"theirs"`` leaves it
            as it is on the branch. Of a table in ``keys`` only the rows in conflict.
        on_equal : {"conflict", "keep"}
            A row that both sides have changed to the same, by a value computed of the row itself
            (``qty - 1``), may stand for two changes: ``"conflict"`` raises, ``"keep"`` takes it for
            one.

        Raises
        ------
        MergeConflict
            Both sides have changed the same. The branch is as it was.
        RefNotFound
        InvalidOperation
            It is a tag, or protected, or ``keys`` names a column that its table lacks.

        Examples
        --------
        >>> _ = lake.branch("night")
        >>> night = lake.on("night")
        >>> _ = night.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 2}]))
        >>> _ = lake.run(lambda txn: txn.append("stock", [{"sku": "rum", "qty": 3}]))
        >>> lake.rebase("night").base_version
        3
        >>> night.sql("SELECT sku FROM stock ORDER BY sku").to_pylist()
        [{'sku': 'jam'}, {'sku': 'rum'}, {'sku': 'tea'}]
        """
        client = self._client.main("rebase")
        _check_name(branch)
        settle = settled(on_conflict, on_equal)
        wanted = Wanted(keys_by_location(client.location_of, keys), settle, client.owner)
        entry, version = client.run_safely(rebase_branch(client.context, branch, wanted))
        return ref_of(branch, entry, version)


def _check_name(branch: object) -> None:
    """Refuse what is no branch's name."""
    if isinstance(branch, Ref):
        raise InvalidOperation(f"rebase takes the name of a branch: pass {branch.name!r}")
    if not isinstance(branch, str):
        raise InvalidOperation(f"rebase takes the name of a branch, not {shown(branch)}")
    if branch == MAIN:
        raise InvalidOperation(
            f"{MAIN!r} is the lake itself, which stands on nothing: rebase takes the branch that "
            "is to go on from it"
        )

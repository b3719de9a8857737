"""A table becomes what it was."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lakevilla.api.applying.alone import in_one_transaction
from lakevilla.api.applying.arguments import StateLike, state_name
from lakevilla.api.begin import begin_transaction
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.lake.frozen.states import StateName
from lakevilla.lake.own_versions import OwnVersion
from lakevilla.results import MergeResult
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.applying.apply import Outcome, restore

__all__ = ["Restores"]


class Restores:
    """What a table does with its older states."""

    __slots__ = ()

    name: str

    def _acting(self, verb: str) -> LakeClient:
        raise NotImplementedError

    def restore(self, to: StateLike) -> MergeResult:
        """Make the table what it was, by a new commit. No data is read or copied.

        ``lake.rollback`` does that for several tables at one global version.

        Parameters
        ----------
        to : int, datetime or str
            A version of the table's own log, as in ``versions``, also from before it joined the
            lake; an aware time; or a ref of the lake.

        Raises
        ------
        VersionNotFound
            The state is not kept any more, or a vacuum may be deleting files of it.
        RefNotFound
        ConflictError
            Others wrote the table each time that it was tried.

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.delete("stock", where="true"))
        >>> lake.table("stock").restore(0).tables
        {'stock': 'physical'}
        >>> lake.read("stock").to_pylist()
        [{'sku': 'tea', 'qty': 5}]
        """
        client = self._acting("restore").main("restore")
        target = _target(client, to)

        def begin(lost: TransactionState | None) -> Executor[Any]:
            return begin_transaction(client, Executor) if lost is None else Executor(client, lost)

        def program(executor: Executor[Any]) -> Program[dict[str, Outcome]]:
            return restore(executor.state, executor.resolve(self.name), target)

        shown = to.isoformat() if isinstance(to, datetime) else str(to)
        return in_one_transaction(client, begin, f"restore to {shown}", program)


def _target(client: LakeClient, to: object) -> OwnVersion | StateName:
    found = state_name(client, "to", to)
    match found:
        case ("version", int(version)):
            return OwnVersion(version=version)
        case ("time", int(moment)):
            return OwnVersion(timestamp_ms=moment)
    return found

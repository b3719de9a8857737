"""Tables as the lake tells of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from lakevilla.api.arguments import check_flag, check_hours, check_size, check_z_order
from lakevilla.api.history import table_history
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import FormatName
from lakevilla.results import OptimizeResult, TableHistoryEntry
from lakevilla.transaction.verbs.optimize import result_of

if TYPE_CHECKING:
    from lakevilla.api.lake import Lake

__all__ = ["Capabilities", "Table"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table at one moment; what is asked of it is done to the table as it is by then.

    ``version`` is the log version that any other reader can be given to see the
    same state; None where no log version equals it (a commit is still to be
    published). ``snapshot_id`` is None for Delta. ``partition_by`` is what
    ``create_table`` takes.
    """

    name: str
    uri: str
    format: FormatName
    version: int | None
    snapshot_id: int | None
    schema: pa.Schema
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    guarded: bool
    _lake: Lake | None = field(default=None, repr=False, compare=False)

    def history(self, limit: int | None = None) -> list[TableHistoryEntry]:
        """The entries of the table's log, newest first, as far back as the log is kept.

        What is decided and not published yet is not among them: ``lake.history()`` has it.
        """
        return table_history(self._acting("history"), self.uri, limit)

    def optimize(
        self,
        where: str | None = None,
        *,
        target_file_size_bytes: int | None = None,
        z_order_by: str | Sequence[str] = (),
    ) -> OptimizeResult:
        """Put small files together, and rewrite those that have a deletion vector.

        Gives way to every other transaction: reads are not in conflict with it, writes
        are done again on the new files, and what others change meanwhile is left as
        they made it.

        Parameters
        ----------
        where : str, optional
            A predicate on partition columns: other partitions are left alone.
        target_file_size_bytes : int, optional
            Default: the table's ``delta.targetFileSize``, else the setting.
        z_order_by : str or sequence of str
            Rewrite all files, each partition ordered along a Z curve over these columns.

        Raises
        ------
        InvalidOperation
            ``where`` asks for more than partition columns, a column has no order, or an
            argument is none of these.
        """
        columns = check_z_order(self.name, z_order_by)
        target_file_size_bytes = check_size(self.name, target_file_size_bytes)
        with self._acting("optimize").transaction() as txn:
            done = txn._optimize(self.name, where, target_file_size_bytes, columns)
            if done is None:
                txn.abort()
                return OptimizeResult()
            planned = done.operation
        return result_of(planned, done, txn.result)

    def vacuum(
        self,
        retention_hours: float | None = None,
        dry_run: bool = True,
        *,
        enforce_retention_duration: bool = True,
    ) -> list[str]:
        """Delete the files that no state of the table younger than the retention needs.

        What running and saved transactions may still commit is kept, as is what the
        versions of the lake within the retention show. Change files, and what is in other
        directories that begin with ``_``, are not touched. Snapshots of an Iceberg table that
        were replaced before the retention are expired first, but for those that a branch or
        tag needs.

        Parameters
        ----------
        retention_hours : float, optional
            Default: the table's ``delta.deletedFileRetentionDuration``, a week if unset, or
            its ``history.expire.max-snapshot-age-ms``, five days if unset.
        dry_run : bool
            Only tell.
        enforce_retention_duration : bool
            Refuse less than the table's retention. False: whoever reads an older state
            without a record on the store (a snapshot, a short transaction, another
            client) may find its files gone.

        Returns
        -------
        list of str
            The paths, relative to the table.

        Raises
        ------
        InvalidOperation
            ``retention_hours`` is below the table's retention, or no number of hours; or the
            table's ``gc.enabled`` is not true, or its directory is another table's too.
        UnsupportedTableFeature
            The table is in a catalog, and cleaned up by its clients.
        """
        check_hours(self.name, retention_hours)
        return self._acting("vacuum").vacuum_table(
            self.name,
            retention_hours,
            check_flag("dry_run", dry_run),
            check_flag("enforce_retention_duration", enforce_retention_duration),
        )

    def _acting(self, verb: str) -> Lake:
        if self._lake is None:
            raise InvalidOperation(
                f"{verb}: this description of table {self.name} belongs to no lake: "
                "ask `lake.table(name)` for one that does",
                table=self.name,
            )
        return self._lake


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
                "as ForeignConflict"
                + ("; `guard` closes that window" if table.format == "delta" else ""),
            ),
        )

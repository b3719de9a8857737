"""The state of a Delta table: immutable, and cheap to derive the next state from.

Deriving costs a node in a chain (``formats.overlay``). The file list is assembled only when it is
requested: the files of the checkpoint, less those that later commits removed, and those
that later commits added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import CLUSTERING_DOMAIN, Change, Entry, FormatName
from lakevilla.formats.delta.checkpoint.file_list import load_files, present_files
from lakevilla.formats.delta.checkpoint.reader import Checkpoint
from lakevilla.formats.delta.metadata.layout import (
    DeltaDefinition,
    contract_of,
    same_contract,
)
from lakevilla.formats.delta.metadata.protocol import VIEW
from lakevilla.formats.files import DataFile, FileRef, TableSize, masked_out, size_of
from lakevilla.formats.layout import DefinedSnapshot, contract_digest
from lakevilla.formats.overlay import EMPTY_TAIL, AddedFiles, Overlay
from lakevilla.formats.pruning import may_match
from lakevilla.formats.views import VIEW_PROPERTY
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program


class DeltaSnapshot(DefinedSnapshot[DeltaDefinition]):
    """See ``formats.base.TableSnapshot``.

    Beyond ``TableSnapshot``, it keeps what a writer of the next entry needs:
    ``domains``, and ``timestamp_ms``, the time of the newest entry (None where
    only the checkpoint was read).
    """

    __slots__ = (
        "_added",
        "_checkpoint",
        "_listed_before",
        "_tail",
        "applications",
        "definition",
        "domains",
        "newest",
        "overlaid",
        "timestamp_ms",
        "version",
    )

    def __init__(
        self,
        version: int,
        definition: DeltaDefinition,
        *,
        checkpoint: Checkpoint | None,
        tail: Overlay,
        applications: Mapping[str, int],
        domains: Mapping[str, str],
        timestamp_ms: int | None,
        overlaid: bool = False,
        newest: Entry | None = None,
    ) -> None:
        self.version = version
        self.definition = definition
        self.applications = applications
        self.domains = domains
        self.timestamp_ms = timestamp_ms
        self.overlaid = overlaid
        self.newest = newest
        self._checkpoint = checkpoint
        self._tail = tail
        self._added: AddedFiles | None = None
        #: The files that a state has added over which changes were laid.
        self._listed_before: AddedFiles | None = None

    @property
    def format(self) -> FormatName:
        return "delta"

    @property
    def catalog(self) -> str:
        return ""

    @property
    def snapshot_id(self) -> int | None:
        return None

    @property
    def time_travel(self) -> int | None:
        return self.version

    @property
    def checkpoint_version(self) -> int:
        """The version of the checkpoint from which the state was read; -1 if from none."""
        return -1 if self._checkpoint is None else self._checkpoint.version

    @property
    def metadata(self) -> dict[str, Any]:
        return self.definition.metadata

    @property
    def protocol(self) -> dict[str, Any]:
        return self.definition.protocol

    @property
    def rules(self) -> tuple[object, ...]:
        return self.metadata, self.protocol, self.definition.clustering

    @property
    def guarded(self) -> bool:
        return self.definition.guarded

    @property
    def append_only(self) -> bool:
        return self.definition.append_only

    @property
    def is_view(self) -> bool:
        definition = self.definition
        return VIEW in definition.features and VIEW_PROPERTY in definition.properties

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint below this state."""
        return self._checkpoint

    @property
    def tail(self) -> Overlay:
        """The changes after the checkpoint."""
        return self._tail

    def application_version(self, application: str) -> int | None:
        return self.applications.get(application)

    def keeps_contract(self, metadata: Mapping[str, Any]) -> bool:
        return same_contract(self.metadata, metadata)

    def contract_of(self, metadata: Mapping[str, Any]) -> str:
        return contract_digest(contract_of(metadata))

    def apply(self, change: Change) -> DeltaSnapshot:
        made = self._with(
            change, self.version, self.applications, self.timestamp_ms, True, self.newest
        )
        made._listed_before = self._added or self._listed_before
        return made

    def advance(self, entry: Entry) -> DeltaSnapshot:
        """Return the state after ``entry``, which must be the next version."""
        if entry.version != self.version + 1:
            raise InvalidOperation(
                f"entry {entry.version} does not follow version {self.version} of table "
                f"{self.table}; read the entries between",
                table=self.table,
            )
        return self.follow(entry)

    def follow(self, entry: Entry) -> DeltaSnapshot:
        """Return the state after ``entry``, which may sum up several entries (a log compaction)."""
        applications = self.applications
        if entry.applications:
            applications = {**applications, **entry.applications}
        return self._with(
            entry.change, entry.version, applications, entry.timestamp_ms, self.overlaid, entry
        )

    def timed(self, timestamp_ms: int) -> DeltaSnapshot:
        """Return the same state with the time of its newest entry known."""
        return self._with(
            Change(), self.version, self.applications, timestamp_ms, self.overlaid, self.newest
        )

    def _with(
        self,
        change: Change,
        version: int,
        applications: Mapping[str, int],
        timestamp_ms: int | None,
        overlaid: bool,
        newest: Entry | None,
    ) -> DeltaSnapshot:
        definition, domains = self.definition, self.domains
        if change.domains:
            domains = _with_domains(domains, change.domains)
        if (
            change.metadata is not None
            or change.protocol is not None
            or domains.get(CLUSTERING_DOMAIN) != definition.clustering
        ):
            definition = DeltaDefinition(
                definition.location,
                definition.table,
                change.metadata if change.metadata is not None else definition.metadata,
                change.protocol if change.protocol is not None else definition.protocol,
                domains.get(CLUSTERING_DOMAIN),
            )
        return DeltaSnapshot(
            version,
            definition,
            checkpoint=self._checkpoint,
            tail=self._tail.with_change(change),
            applications=applications,
            domains=domains,
            timestamp_ms=timestamp_ms,
            overlaid=overlaid,
            newest=newest,
        )

    def files(self, where: Expr | None = None) -> Program[pa.Table]:
        folded = self._tail.fold()
        added = self._files_of_tail()
        if where is not None and added.num_rows:
            kept = may_match(added, self.layout, where)
            if kept.true_count < len(kept):
                added = added.filter(kept)
        if self._checkpoint is None:
            return added
        # The layout that wrote the checkpoint may lack columns of the present layout that were
        # added since; pruning uses the present one.
        base = yield from load_files(self._checkpoint, self.layout, where)
        masks = folded.masks
        return pa.concat_tables([masked_out(base, masks), added]) if masks else base

    def check_files(self) -> Program[None]:
        # The log's entries were decoded when the state was opened: only a checkpoint is left.
        if self._checkpoint is not None:
            yield from load_files(self._checkpoint, self.layout, None)

    def _files_of_tail(self) -> pa.Table:
        added = self._added
        if added is None:
            # Another thread may clear the attributes meanwhile.
            self._added = added = AddedFiles.of(self._tail.fold(), self._listed_before)
            self._listed_before = None
        return added.table

    def forget_files(self) -> None:
        self._added = self._listed_before = None

    def missing(self, refs: Sequence[FileRef]) -> Program[list[FileRef]]:
        unknown: list[FileRef] = []
        missing: set[FileRef] = set()
        for ref in refs:
            match self._tail.live(ref):
                case None:
                    unknown.append(ref)
                case False:
                    missing.add(ref)
        if unknown and self._checkpoint is not None and self._checkpoint.parts:
            found = yield from present_files(self._checkpoint, unknown)
            unknown = [ref for ref in unknown if ref not in found]
        missing.update(unknown)
        return [ref for ref in refs if ref in missing]

    def recent(self, ref: FileRef) -> DataFile | None:
        """Return a live file, if the log has added it since its checkpoint."""
        return self._tail.fold().adds.get(ref)

    def known_size(self) -> TableSize | None:
        # The files of a checkpoint are read when they are requested, and not kept.
        return None if self._checkpoint is not None else size_of(self._tail.fold().adds.values())


def _with_domains(
    domains: Mapping[str, str], changed: Sequence[Mapping[str, Any]]
) -> Mapping[str, str]:
    result = dict(domains)
    for action in changed:
        if action.get("removed"):
            result.pop(action["domain"], None)
        else:
            result[action["domain"]] = action["configuration"]
    return result


def blank_snapshot(location: str, table: str) -> DeltaSnapshot:
    """Return the state before version 0."""
    return DeltaSnapshot(
        -1,
        DeltaDefinition(location, table, {}, {}),
        checkpoint=None,
        tail=EMPTY_TAIL,
        applications={},
        domains={},
        timestamp_ms=None,
    )


def snapshot_of(location: str, table: str, checkpoint: Checkpoint) -> DeltaSnapshot:
    """Return the state that a checkpoint holds."""
    clustering = checkpoint.domains.get(CLUSTERING_DOMAIN)
    return DeltaSnapshot(
        checkpoint.version,
        DeltaDefinition(location, table, checkpoint.metadata, checkpoint.protocol, clustering),
        checkpoint=checkpoint,
        tail=checkpoint.inline,
        applications=checkpoint.applications,
        domains=checkpoint.domains,
        timestamp_ms=None,
    )

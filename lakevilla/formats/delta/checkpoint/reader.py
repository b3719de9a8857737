"""Checkpoints of every kind: classic, multi-part, v2 with and without sidecars.

Opening a checkpoint reads what a snapshot needs at once: protocol, metadata,
application versions and domains. Its file list is read when asked for, in
batches, pruned on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.errors import CorruptObject
from lakevilla.formats.delta.actions import (
    Action,
    Sidecar,
    change_of,
    check_definition,
    parse_actions,
)
from lakevilla.formats.delta.checkpoint.parts import Part, damaged, fetch, open_part
from lakevilla.formats.overlay import EMPTY_TAIL, Overlay
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, parallel

#: Rows decoded at once: larger batches are no faster and hold more memory.
BATCH_ROWS = 16_384

# The actions that are not files, each with a field that it always has.
_SMALL = {
    "protocol": "protocol.minReaderVersion",
    "metaData": "metaData.id",
    "txn": "txn.appId",
    "domainMetadata": "domainMetadata.domain",
    "sidecar": "sidecar.path",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A table's state at a version, its files still unread.

    ``inline`` holds the files of a JSON checkpoint without sidecars. ``kept`` is the
    file list once it was read, if it is short: all snapshots above share it.
    """

    version: int
    metadata: dict[str, Any]
    protocol: dict[str, Any]
    applications: Mapping[str, int]
    domains: Mapping[str, str]
    parts: tuple[Part, ...]
    inline: Overlay = EMPTY_TAIL
    kept: list[pa.Table] = field(default_factory=list, compare=False)


def open_checkpoint(location: str, version: int, keys: Sequence[str]) -> Program[Checkpoint]:
    """Read what a snapshot needs of a checkpoint. Raises ``CorruptObject``."""
    if keys[0].endswith(".json"):
        return (yield from _open_json(location, version, keys[0]))
    parts = yield from parallel([open_part(key) for key in keys])
    for part in parts:
        if part.columns(("add",)) and not part.columns(("add.path",)):
            raise damaged(f"checkpoint part {part.key} has add actions without a path", part.key)
    wanted = []
    for part in parts:
        for group in part.row_groups:
            held = [name for name, field in _SMALL.items() if part.holds(group, field)]
            if held:
                wanted.append((part, group, held))
    actions: list[Action] = []
    for (_, group, held), fetched in zip(wanted, (yield from fetch(wanted)), strict=True):
        for batch in fetched.batches(group, held, BATCH_ROWS):
            actions.extend(_small_actions(batch, held, fetched.part.key))
    return (yield from _assemble(location, version, keys[0], actions, tuple(parts), EMPTY_TAIL))


def _open_json(location: str, version: int, key: str) -> Program[Checkpoint]:
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        raise CorruptObject(f"checkpoint {key} is missing; remove what points at it", key=key)
    actions = parse_actions(outcome.body, key)
    inline = EMPTY_TAIL.with_change(change_of(actions, key))
    return (yield from _assemble(location, version, key, actions, (), inline))


def _assemble(
    location: str,
    version: int,
    key: str,
    actions: Sequence[Action],
    parts: tuple[Part, ...],
    inline: Overlay,
) -> Program[Checkpoint]:
    protocol = next((a.protocol for a in actions if a.protocol is not None), None)
    metadata = next((a.meta_data for a in actions if a.meta_data is not None), None)
    if protocol is None or metadata is None:
        raise damaged(f"checkpoint {key} has no protocol or no metaData action", key)
    check_definition(metadata, protocol, key)
    sidecars = [a.sidecar for a in actions if a.sidecar is not None]
    files = yield from parallel([open_part(_sidecar_key(location, car)) for car in sidecars])
    domains = [a.domain_metadata for a in actions if a.domain_metadata is not None]
    return Checkpoint(
        version=version,
        metadata=metadata,
        protocol=protocol,
        applications={a.txn.app_id: a.txn.version for a in actions if a.txn is not None},
        domains={d.domain: d.configuration for d in domains if not d.removed},
        parts=(*parts, *files),
        inline=inline,
    )


def _sidecar_key(location: str, sidecar: Sidecar) -> str:
    if "/" in sidecar.path:
        return sidecar.path
    return f"{location}/_delta_log/_sidecars/{sidecar.path}"


def _small_actions(batch: pa.RecordBatch, names: Sequence[str], key: str) -> Iterator[Action]:
    for name in names:
        column = batch.column(batch.schema.get_field_index(name))
        for row in column.filter(pc.is_valid(column)).to_pylist():
            try:
                yield msgspec.convert({name: _as_json(row)}, Action)
            except msgspec.ValidationError as error:
                what = f"checkpoint part {key} has a broken {name} action: {error}"
                raise damaged(what, key) from None


# Fields that are maps (a domain's configuration is text): Arrow shows them as lists of
# pairs, an empty one as any empty list.
_MAPS = frozenset({"configuration", "options", "tags"})


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """A Parquet struct as the JSON action would be: without nulls, maps as objects."""
    action: dict[str, Any] = {}
    for name, value in row.items():
        if value is None:
            continue
        if name in _MAPS and isinstance(value, list):
            value = dict(value)
        elif isinstance(value, dict):
            value = _as_json(value)
        action[name] = value
    return action

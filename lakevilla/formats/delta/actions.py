"""Actions of the Delta log, and the paths in them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote, unquote

import msgspec

from lakevilla.arrow.nesting import document
from lakevilla.errors import CorruptObject
from lakevilla.formats.base import Change, Entry
from lakevilla.formats.files import ChangeFile, DataFile, DeletionVector, FileRef, RemovedFile

# -------------------- actions
#
# The actions of a Delta log entry, as JSON and as values.
#
# One parser reads commits, log compactions and JSON checkpoints; one writer
# makes the lines of a commit. Actions and fields unknown to this module are
# skipped, as the protocol requires of readers; ``protocol`` decides whether a table
# may be read at all.


_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Vector(msgspec.Struct, rename="camel"):
    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: _Int
    cardinality: _Long
    offset: _Int | None = None


class _Add(msgspec.Struct, rename="camel"):
    path: str
    size: _Long
    modification_time: _Long = 0
    partition_values: dict[str, str | None] | None = None
    data_change: bool = True
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: _Vector | None = None
    base_row_id: _Long | None = None
    default_row_commit_version: _Long | None = None
    clustering_provider: str | None = None


class _Remove(msgspec.Struct, rename="camel"):
    path: str
    data_change: bool = True
    deletion_timestamp: _Long | None = None
    partition_values: dict[str, str | None] | None = None
    size: _Long | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: _Vector | None = None
    base_row_id: _Long | None = None
    default_row_commit_version: _Long | None = None


class _Cdc(msgspec.Struct, rename="camel"):
    path: str
    size: _Long
    partition_values: dict[str, str | None] | None = None


class _Txn(msgspec.Struct, rename="camel"):
    app_id: str
    version: _Long


class _Domain(msgspec.Struct):
    domain: str
    configuration: str
    removed: bool = False


class _Format(msgspec.Struct):
    provider: str = "parquet"


class _MetaData(msgspec.Struct, rename="camel"):
    """The fields of a ``metaData`` action that are checked: the action is kept unchanged."""

    schema_string: str
    id: str | None = None
    format: _Format | None = None
    partition_columns: list[str] | None = None
    configuration: dict[str, str | bool | int | float | None] | None = None


class _Protocol(msgspec.Struct, rename="camel"):
    """The fields of a ``protocol`` action that are checked."""

    min_reader_version: Annotated[int, msgspec.Meta(ge=0)]
    min_writer_version: Annotated[int, msgspec.Meta(ge=0)]
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class Sidecar(msgspec.Struct, rename="camel"):
    """A file of a v2 checkpoint that holds its ``add`` and ``remove`` actions."""

    path: str
    size_in_bytes: int


class Action(msgspec.Struct, rename="camel"):
    """One line of a log entry: the field that is not None is the action."""

    add: _Add | None = None
    remove: _Remove | None = None
    cdc: _Cdc | None = None
    txn: _Txn | None = None
    commit_info: dict[str, Any] | None = None
    meta_data: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None
    domain_metadata: _Domain | None = None
    sidecar: Sidecar | None = None


_decoder = msgspec.json.Decoder(Action)
_encoder = msgspec.json.Encoder()


def parse_actions(body: bytes, key: str) -> list[Action]:
    """Return the actions of a JSON object of the log. Raises ``CorruptObject``."""
    try:
        actions = _decoder.decode_lines(body)
    except (ValueError, RecursionError) as error:
        raise CorruptObject(
            f"{key} is no delta log entry: {error}; restore the object or the table", key=key
        ) from None
    if not actions:
        # A store without atomic writes shows an entry before its content is written.
        raise CorruptObject(f"{key} is an empty delta log entry; restore the object", key=key)
    said = _own_info(actions[0].commit_info or {}).get("lines")
    if isinstance(said, int) and len(actions) < said:
        raise CorruptObject(
            f"{key} has {len(actions)} of the {said} lines with which it was written: read it "
            "again, or restore the object or the table",
            key=key,
        )
    return actions


def _own_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return what LakeVilla has written into an entry's commitInfo."""
    own = info.get("lakevilla")
    return own if isinstance(own, dict) else {}


def parse_entry(location: str, version: int, body: bytes) -> Entry:
    """Describe one log entry."""
    key = entry_key(location, version)
    return _described(version, key, parse_actions(body, key))


def compaction_of(version: int, key: str, body: bytes) -> Entry | None:
    """Describe the log compaction at ``key``, which takes a table to ``version``.

    Return None unless it is a correct sum of its entries. A compaction that names a thing twice, or
    that can't be read, does not show which of its lines is the newest; the entries do.
    """
    try:
        actions = parse_actions(body, key)
        entry = _described(version, key, actions)
    except CorruptObject:
        return None
    named = [name for action in actions for name in _names(action)]
    return entry if len(named) == len(set(named)) else None


def _names(action: Action) -> Iterator[tuple[str | None, ...]]:
    """Yield the names of the things that an action describes; in a correct sum no two actions share
    one.
    """
    if action.add is not None:
        yield "add", action.add.path
    if action.remove is not None:
        vector = _vector(action.remove.deletion_vector)
        yield "remove", action.remove.path, None if vector is None else vector.id
    if action.txn is not None:
        yield "txn", action.txn.app_id
    if action.domain_metadata is not None:
        yield "domain", action.domain_metadata.domain
    if action.meta_data is not None:
        yield ("metaData",)
    if action.protocol is not None:
        yield ("protocol",)


def entry_with_faults(version: int, key: str, body: bytes) -> tuple[Entry, EntryFaults]:
    """Return the entry at ``key`` without its faults, and the faults."""
    actions = parse_actions(body, key)
    change, faults = _read(actions, key)
    return _with_change(version, actions, change), faults


def _described(version: int, key: str, actions: Sequence[Action]) -> Entry:
    return _with_change(version, actions, change_of(actions, key))


def _with_change(version: int, actions: Sequence[Action], change: Change) -> Entry:
    info = next((a.commit_info for a in actions if a.commit_info is not None), {})
    own = _own_info(info)
    nonce = own.get("nonce")
    return Entry(
        version=version,
        change=change,
        applications={a.txn.app_id: a.txn.version for a in actions if a.txn is not None},
        txn_ids=_ids_in(own.get("txns")),
        nonce=str(nonce) if nonce is not None else None,
        operation=str(info.get("operation", "")),
        is_blind_append=info.get("isBlindAppend") is True,
        timestamp_ms=_timestamp(info),
        raw_commit_info=info,
        members=_ids_in(own.get("members")),
    )


def _ids_in(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _timestamp(info: dict[str, Any]) -> int:
    for name in ("inCommitTimestamp", "timestamp"):
        value = info.get(name)
        if isinstance(value, int):
            return value
    return 0


@dataclass(frozen=True, slots=True)
class EntryFaults:
    """The parts of a log object that have no clear meaning: a later object may settle them.

    These are a definition that can't be read, and files that exist or not depending on the order
    in which the lines are read.
    """

    metadata: CorruptObject | None
    protocol: CorruptObject | None
    files: Mapping[FileRef, CorruptObject]

    def first(self) -> CorruptObject | None:
        return self.metadata or self.protocol or next(iter(self.files.values()), None)


NO_FAULTS = EntryFaults(None, None, {})


def change_of(actions: Iterable[Action], key: str) -> Change:
    """Return the change that the actions of one object make together.

    Raises
    ------
    CorruptObject
        The object has a fault (see ``EntryFaults``).
    """
    change, faults = _read(actions, key)
    fault = faults.first()
    if fault is not None:
        raise fault
    return change


def _read(actions: Iterable[Action], key: str) -> tuple[Change, EntryFaults]:
    adds: list[DataFile] = []
    removes: list[RemovedFile] = []
    cdc: list[ChangeFile] = []
    metadata: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None
    domains: list[dict[str, Any]] = []
    try:
        for action in actions:
            # A line holds one action; any other actions of the line are read as well.
            if action.add is not None and action.remove is not None:
                raise CorruptObject(
                    f"{key} is no valid delta log entry: one line adds {action.add.path} and "
                    f"removes {action.remove.path}; restore the object",
                    key=key,
                )
            if action.add is not None:
                adds.append(_data_file(action.add))
            if action.remove is not None:
                removes.append(_removed_file(action.remove))
            if action.cdc is not None:
                path = decode_path(action.cdc.path)
                values = _partition_values(action.cdc.partition_values) or {}
                cdc.append(ChangeFile(path, action.cdc.size, values))
            if action.meta_data is not None:
                metadata = action.meta_data
            if action.protocol is not None:
                protocol = action.protocol
            if action.domain_metadata is not None:
                domains.append(msgspec.to_builtins(action.domain_metadata))
    except UnicodeDecodeError as error:
        raise CorruptObject(f"{key} has a path that is no utf-8: {error}", key=key) from None
    files = {file.ref: file for file in adds}
    removed = {file.ref: file for file in removes}
    faults = EntryFaults(
        _fault("metaData", metadata, _MetaData, key),
        _fault("protocol", protocol, _Protocol, key),
        _open_files(files, removed, key),
    )
    change = Change(
        tuple(file for ref, file in files.items() if ref not in faults.files),
        tuple(file for ref, file in removed.items() if ref not in faults.files),
        tuple(cdc),
        None if faults.metadata else metadata,
        None if faults.protocol else protocol,
        tuple(domains),
    )
    return change, faults


def check_definition(
    metadata: dict[str, Any] | None, protocol: dict[str, Any] | None, key: str
) -> None:
    """Raise ``CorruptObject`` unless the given actions can be a table's definition."""
    fault = _fault("metaData", metadata, _MetaData, key)
    fault = fault or _fault("protocol", protocol, _Protocol, key)
    if fault is not None:
        raise fault


def _fault(
    name: str, action: dict[str, Any] | None, kind: type[msgspec.Struct], key: str
) -> CorruptObject | None:
    if action is None:
        return None
    try:
        msgspec.convert(action, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        return CorruptObject(
            f"{key} has a {name} action that cannot be read: {error}; restore the object", key=key
        )
    return None


def _open_files(
    adds: Mapping[FileRef, DataFile], removes: Container[FileRef], key: str
) -> dict[FileRef, CorruptObject]:
    """Return files that have no single meaning: actions of one object have no order.

    The protocol calls this illegal; Spark lets the last line decide and delta-kernel the first,
    so with either choice some client loses rows or sees rows twice.
    """
    found: dict[FileRef, CorruptObject] = {}
    first: dict[str, FileRef] = {}
    for ref in adds:
        other = first.setdefault(ref[0], ref)
        if ref in removes:
            found[ref] = _of_two_meanings(key, ref[0], "is added and removed")
        if other != ref:
            fault = _of_two_meanings(key, ref[0], "is added with two vectors")
            found |= {ref: fault, other: fault}
    return found


def _of_two_meanings(key: str, path: str, what: str) -> CorruptObject:
    return CorruptObject(
        f"{key} is no valid delta log entry: the file {path} {what}; restore the table to the "
        "version before it with the client that wrote it, or restore the object",
        key=key,
    )


def _data_file(add: _Add) -> DataFile:
    path = decode_path(add.path)
    return DataFile(
        path=path,
        size=add.size,
        modification_time=add.modification_time,
        partition_values=_partition_values(add.partition_values) or {},
        stats=add.stats,
        deletion_vector=_vector(add.deletion_vector),
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
        tags=add.tags,
        data_change=add.data_change,
        raw_path=raw_spelling(add.path, path),
        clustering_provider=add.clustering_provider,
    )


def _removed_file(remove: _Remove) -> RemovedFile:
    path = decode_path(remove.path)
    return RemovedFile(
        path=path,
        size=remove.size,
        partition_values=_partition_values(remove.partition_values),
        deletion_vector=_vector(remove.deletion_vector),
        base_row_id=remove.base_row_id,
        default_row_commit_version=remove.default_row_commit_version,
        stats=remove.stats,
        data_change=remove.data_change,
        raw_path=raw_spelling(remove.path, path),
        tags=remove.tags,
        deletion_timestamp=remove.deletion_timestamp,
    )


def _partition_values(values: dict[str, str | None] | None) -> dict[str, str | None] | None:
    if values is None or "" not in values.values():
        return values
    # The protocol: "an empty string for any type translates to a null partition value".
    return {name: value or None for name, value in values.items()}


def _vector(vector: _Vector | None) -> DeletionVector | None:
    if vector is None:
        return None
    return DeletionVector(
        vector.storage_type,
        vector.path_or_inline_dv,
        vector.size_in_bytes,
        vector.cardinality,
        vector.offset,
    )


def json_line(name: str, action: dict[str, Any]) -> bytes:
    """Return one action as a line, without the line's end."""
    return _encoder.encode({name: action})


def add_line(file: DataFile) -> bytes:
    """Return an ``add`` action."""
    action: dict[str, Any] = {
        "path": file.raw_path or encode_path(file.path),
        "partitionValues": file.partition_values,
        "size": file.size,
        "modificationTime": file.modification_time,
        "dataChange": file.data_change,
    }
    _put(action, "stats", file.stats)
    _put(action, "tags", file.tags)
    _put(action, "deletionVector", _vector_json(file.deletion_vector))
    _put(action, "baseRowId", file.base_row_id)
    _put(action, "defaultRowCommitVersion", file.default_row_commit_version)
    _put(action, "clusteringProvider", file.clustering_provider)
    return json_line("add", action)


def remove_line(file: RemovedFile, deletion_timestamp: int) -> bytes:
    """Return a ``remove`` action; ``deletion_timestamp`` is used where the file has none."""
    stamp = file.deletion_timestamp
    action: dict[str, Any] = {
        "path": file.raw_path or encode_path(file.path),
        "deletionTimestamp": deletion_timestamp if stamp is None else stamp,
        "dataChange": file.data_change,
    }
    if file.partition_values is not None and file.size is not None:
        action["extendedFileMetadata"] = True
    _put(action, "partitionValues", file.partition_values)
    _put(action, "size", file.size)
    _put(action, "stats", file.stats)
    _put(action, "tags", file.tags)
    _put(action, "deletionVector", _vector_json(file.deletion_vector))
    _put(action, "baseRowId", file.base_row_id)
    _put(action, "defaultRowCommitVersion", file.default_row_commit_version)
    return json_line("remove", action)


def cdc_line(file: ChangeFile) -> bytes:
    """Return a ``cdc`` action."""
    action = {
        "path": encode_path(file.path),
        "partitionValues": file.partition_values,
        "size": file.size,
        "dataChange": False,
    }
    return json_line("cdc", action)


def lines(parts: Sequence[bytes]) -> bytes:
    """Return a log entry of these lines."""
    return b"\n".join(parts) + b"\n"


def _vector_json(vector: DeletionVector | None) -> dict[str, Any] | None:
    if vector is None:
        return None
    action: dict[str, Any] = {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }
    _put(action, "offset", vector.offset)
    return action


def _put(action: dict[str, Any], name: str, value: object) -> None:
    if value is not None:
        action[name] = value


# -------------------- paths
#
# Names in a Delta log: keys of log objects, and paths of data files as URIs.
#
# A path in the log is a percent-encoded URI (RFC 2396). The library works with
# decoded paths, which are the store's keys. Writers differ in the characters that they encode
# (Spark leaves letters beyond ASCII alone, delta-rs does not), and some readers
# match a ``remove`` with its ``add`` by spelling. So a path that LakeVilla would
# spell otherwise is kept with its first spelling. Absolute paths are spelt in
# several ways even within one log: here each has one (``file:///``, ``s3://``, ``abfss://``).


# The characters that delta-rs and Spark both leave unchanged, besides letters, digits and "_.-~".
_SAFE = "!$&'()*+,/:;=@"
_NEEDS_ENCODING = re.compile(r"[^A-Za-z0-9_.\-~!$&'()*+,/:;=@]")

#: Beginnings of absolute paths that LakeVilla knows by another spelling.
RESPELT = {"file:///": "file:///", "file:/": "file:///", "/": "file:///", "s3a://": "s3://",
           "s3n://": "s3://", "abfs://": "abfss://", "az://": "abfss://"}  # fmt: skip


def log_directory(location: str) -> str:
    """Return the directory of a table's log."""
    return f"{location}/_delta_log"


def begins_as(body: bytes, entry: Entry | None, version: int) -> bool:
    """Return whether ``body`` may be the beginning of the log entry ``entry``.

    Most writers begin with the ``commitInfo``, in one line; for other beginnings the result is
    True.
    """
    line, end, _ = body.partition(b"\n")
    if entry is None or entry.version != version or not end:
        return True
    try:
        action = document(line)
    except ValueError:
        return True
    info = action.get("commitInfo") if isinstance(action, dict) else None
    return info is None or info == entry.raw_commit_info


def entry_key(location: str, version: int) -> str:
    """Return the key of a log entry."""
    return f"{location}/_delta_log/{version:020}.json"


def decode_path(raw: str) -> str:
    """Return a path as the store knows it. Raises ``ValueError`` on bytes that are no UTF-8."""
    path = unquote(raw, errors="strict") if "%" in raw else raw
    for start, known in RESPELT.items():
        if path.startswith(start):
            return known + path.removeprefix(start)
    return path


def encode_path(path: str) -> str:
    """Return a path as the log spells it."""
    return quote(path, safe=_SAFE) if _NEEDS_ENCODING.search(path) else path


def raw_spelling(raw: str, path: str) -> str | None:
    """Return ``raw`` if ``encode_path`` would spell the decoded ``path`` in another way."""
    return None if encode_path(path) == raw else raw

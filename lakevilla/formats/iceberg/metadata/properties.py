"""The properties of a table: their numbers, and the properties that may be set.

Iceberg's clients read the properties that they know and ignore the rest silently, including a
misspelt name or value: so LakeVilla refuses those when they are set (hazard 42).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

from lakevilla.errors import InvalidOperation, UnsupportedTableFeature
from lakevilla.formats.base import check_upkeep, is_upkeep
from lakevilla.settings import shown

_MOST = 2**63 - 1

_NUMBER = re.compile(r"[0-9]{1,18}")
_SWITCH = re.compile(r"true|false", re.IGNORECASE)
_METRICS = re.compile(r"none|counts|full|truncate\([1-9][0-9]{0,8}\)", re.IGNORECASE)
_MODE = re.compile(r"copy-on-write|merge-on-read", re.IGNORECASE)
_CODEC = re.compile(r"zstd|snappy|gzip|brotli|lz4|uncompressed", re.IGNORECASE)
_AVRO_CODEC = re.compile(r"zstd|snappy|gzip|uncompressed", re.IGNORECASE)

#: The form of each value, and the words for it in messages.
_VALUES: dict[str, tuple[re.Pattern[str], str]] = {
    **dict.fromkeys(
        (
            "commit.manifest.min-count-to-merge",
            "commit.manifest.target-size-bytes",
            "commit.retry.num-retries",
            "history.expire.max-ref-age-ms",
            "history.expire.max-snapshot-age-ms",
            "history.expire.min-snapshots-to-keep",
            "write.metadata.metrics.max-inferred-column-defaults",
            "write.metadata.previous-versions-max",
            "write.parquet.dict-size-bytes",
            "write.parquet.page-row-limit",
            "write.parquet.page-size-bytes",
            "write.parquet.row-group-size-bytes",
            "write.target-file-size-bytes",
        ),
        (_NUMBER, "a whole number"),
    ),
    **dict.fromkeys(
        (
            "commit.manifest-merge.enabled",
            "gc.enabled",
            "write.metadata.delete-after-commit.enabled",
            "write.object-storage.enabled",
            "write.wap.enabled",
        ),
        (_SWITCH, "true or false"),
    ),
    **dict.fromkeys(
        ("write.delete.mode", "write.merge.mode", "write.update.mode"),
        (_MODE, "copy-on-write or merge-on-read"),
    ),
    "write.metadata.metrics.default": (_METRICS, "none, counts, truncate(length) or full"),
    "write.parquet.compression-codec": (
        _CODEC,
        "zstd, snappy, gzip, brotli, lz4 or uncompressed",
    ),
    "write.avro.compression-codec": (_AVRO_CODEC, "zstd, snappy, gzip or uncompressed"),
    "write.metadata.compression-codec": (re.compile(r"none|gzip", re.IGNORECASE), "none or gzip"),
    "write.format.default": (re.compile(r"parquet|orc|avro", re.IGNORECASE), "parquet"),
}
_COLUMN_METRICS = "write.metadata.metrics.column."
#: Names whose values are free.
_FREE = (
    "schema.name-mapping.default",
    "write.data.path",
    "write.distribution-mode",
    "write.metadata.path",
    "write.parquet.compression-level",
)
#: Names that mean parts of the metadata itself; no table keeps them as properties.
_RESERVED = frozenset(
    {
        "format-version",
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
_ENCRYPTION = "encryption."


def whole_number(properties: Mapping[str, str], name: str, default: int) -> int:
    """Return a property's value, at most the 64-bit maximum; the default if unset or no number."""
    text = properties.get(name, "")
    if not (text.isascii() and text.isdigit()):
        return default
    return min(int(text), _MOST) if len(text) <= len(str(_MOST)) else _MOST


def check_settable(properties: Mapping[str, str], table: str) -> None:
    """Refuse properties that can't be set, and those that no client would understand as intended.

    Raises
    ------
    InvalidOperation
        A name is not the user's to set, or misspelt, or its value is not allowed for it.
    UnsupportedTableFeature
        LakeVilla does not do what the property requires of every writer.
    """
    for name, value in properties.items():
        if is_upkeep(name):
            check_upkeep(name, value, table)
            continue
        _check_name(name, table)
        pattern, wanted = _VALUES.get(name, (None, ""))
        if name.startswith(_COLUMN_METRICS):
            pattern, wanted = _VALUES["write.metadata.metrics.default"]
        if pattern is not None and pattern.fullmatch(value) is None:
            raise InvalidOperation(
                f"property {name} of table {table} can't be {shown(value)}: set it to {wanted}",
                table=table,
            )


def _check_name(name: str, table: str) -> None:
    if name.startswith(_ENCRYPTION):
        raise UnsupportedTableFeature(
            f"property {name} can't be set on table {table}: LakeVilla does not encrypt files",
            table=table,
        )
    if name in _RESERVED or name.startswith("lakevilla."):
        raise InvalidOperation(
            f"property {name} can't be set on table {table}: LakeVilla keeps it, or the format "
            "does",
            table=table,
        )
    if name.startswith("delta."):
        raise InvalidOperation(
            f"property {name} can't be set on table {table}: it is a property of Delta tables",
            table=table,
        )
    known = [*_VALUES, *_FREE, *_RESERVED]
    plain = name.lower().replace("_", "-")
    if name in known or name.startswith(_COLUMN_METRICS):
        return
    if "." not in name and plain not in known:
        return  # a name of the user's own
    meant = [plain] if plain in known else get_close_matches(plain, known, 1, 0.93)
    if meant:
        raise InvalidOperation(
            f"property {name} can't be set on table {table}: no client knows it; did you mean "
            f"{meant[0]}?",
            table=table,
        )

"""Table properties: the names that Delta knows, their values, and the features they require.

A name that begins with ``delta.`` has a meaning for other clients. So a misspelt one is refused,
and so is one that would require an action that LakeVilla can't do; misspelt upkeep properties are
refused too. All other names are the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from lakevilla.errors import InvalidOperation, UnsupportedTableFeature
from lakevilla.formats.base import check_upkeep, is_upkeep
from lakevilla.formats.delta.metadata.protocol import READER_FEATURES, VIEW, WRITER_FEATURES
from lakevilla.formats.delta.metadata.schema import Field, needed_features
from lakevilla.formats.views import VIEW_PROPERTY
from lakevilla.settings import shown

#: The prefix of the names of CHECK constraints.
CONSTRAINT = "delta.constraints."
_FEATURE = "delta.feature."

#: The Parquet codecs with which data files may be written.
COMPRESSIONS = ("snappy", "zstd", "gzip", "lz4_raw", "uncompressed", "brotli")

# ------------------------------------------------------------------ meaning of a value

_Check = Callable[[str], str | None]


def _flag(value: str) -> str | None:
    # In lower case, since delta-rs reads no other spelling.
    # docs/upstream.md, "A property in capital letters is ignored"
    return value.lower() if value.lower() in ("true", "false") else None


def _whole(least: int) -> _Check:
    def check(value: str) -> str | None:
        fits = re.fullmatch(r"-?\d{1,18}", value.strip()) and int(value) >= least
        return str(int(value)) if fits else None

    return check


def _interval(value: str) -> str | None:
    # Spark accepts an interval without the word ``interval``, delta-kernel does not.
    # docs/upstream.md, "An interval needs a word that Spark does not need"
    words = value.lower().split()
    words = words if words[:1] == ["interval"] else ["interval", *words]
    return None if _milliseconds(words[1:]) is None else " ".join(words)


def _size(value: str) -> str | None:
    return None if file_size(value) is None else value.strip()


def _one_of(*choices: str) -> _Check:
    known = {choice.lower(): choice for choice in choices}
    return lambda value: known.get(value.strip().lower())


def _text(value: str) -> str | None:
    return value


_FLAG = (_flag, "true or false")
_POSITIVE = (_whole(1), "a whole number above 0")
_INTERVAL = (_interval, "an interval of weeks or less, as 'interval 7 days'")
_SIZE = (_size, "a number of bytes, as '128mb'")
_TEXT = (_text, "text")
_SWITCH = (_one_of("true", "false", "auto", "legacy"), "true, false, auto or legacy")

#: Every property that may be set: the check of its value, and the allowed values in words.
_KNOWN: dict[str, tuple[_Check, str]] = {
    "delta.appendOnly": _FLAG,
    "delta.autoOptimize": _FLAG,
    "delta.autoOptimize.autoCompact": _SWITCH,
    "delta.autoOptimize.optimizeWrite": _FLAG,
    "delta.checkpoint.writeStatsAsJson": _FLAG,
    "delta.checkpoint.writeStatsAsStruct": _FLAG,
    "delta.checkpointInterval": _POSITIVE,
    "delta.checkpointPolicy": (_one_of("classic", "v2"), "classic or v2"),
    "delta.checkpointRetentionDuration": _INTERVAL,
    "delta.columnMapping.mode": (_one_of("none", "name", "id"), "none, name or id"),
    "delta.dataSkippingNumIndexedCols": (_whole(-1), "a whole number, -1 for all columns"),
    "delta.dataSkippingStatsColumns": _TEXT,
    "delta.deletedFileRetentionDuration": _INTERVAL,
    "delta.dropFeatureTruncateHistory.retentionDuration": _INTERVAL,
    "delta.enableChangeDataFeed": _FLAG,
    "delta.enableDeletionVectors": _FLAG,
    "delta.enableExpiredLogCleanup": _FLAG,
    "delta.enableFullRetentionRollback": _FLAG,
    "delta.enableInCommitTimestamps": _FLAG,
    "delta.enableRowTracking": _FLAG,
    "delta.enableTypeWidening": _FLAG,
    "delta.isolationLevel": (
        _one_of("Serializable", "WriteSerializable", "SnapshotIsolation"),
        "Serializable, WriteSerializable or SnapshotIsolation",
    ),
    "delta.logRetentionDuration": _INTERVAL,
    "delta.parquet.compression.codec": (_one_of(*COMPRESSIONS), " or ".join(COMPRESSIONS)),
    "delta.randomizeFilePrefixes": _FLAG,
    "delta.randomPrefixLength": _POSITIVE,
    "delta.rowTrackingSuspended": _FLAG,
    "delta.sampleRetentionDuration": _INTERVAL,
    "delta.targetFileSize": _SIZE,
    "delta.tuneFileSizesForRewrites": _FLAG,
}

#: Flags that may only be set to false: with true, writers must do something LakeVilla does not do.
_ONLY_FALSE = {
    "delta.compatibility.symlinkFormatManifest.enabled": "manifests of links at each commit",
    "delta.enableIcebergCompatV1": "the table feature icebergCompatV1",
    "delta.enableIcebergCompatV2": "the table feature icebergCompatV2",
    "delta.enableIcebergCompatV3": "the table feature icebergCompatV3",
    "delta.enableIcebergWriterCompatV1": "the table feature icebergWriterCompatV1",
    "delta.enableIcebergWriterCompatV3": "the table feature icebergWriterCompatV3",
    "delta.enableMaterializePartitionColumnsFeature": "the feature materializePartitionColumns",
    "delta.enableVariantShredding": "the table feature variantShredding",
}

#: Names, or prefixes (with a last dot), that request something LakeVilla does not do.
_REFUSED = {
    "delta.coordinatedCommits.": "commits through a coordinator",
    "delta.redirectReaderWriter": "a redirect to another table",
    "delta.redirectWriterOnly": "a redirect to another table",
    "delta.universalFormat.": "metadata for Iceberg or Hudi at each commit",
}

#: The property by which each row gets an id, and the one by which rows of new files get none.
TRACKS = "delta.enableRowTracking"
SUSPENDED = "delta.rowTrackingSuspended"
#: The properties that name the columns in which files keep row ids and commit versions.
LINEAGE = "delta.rowTracking.materialized"
LINEAGE_PARTS = ("RowId", "RowCommitVersion")
#: The prefix of the properties that record where a log's in-commit timestamps begin.
ENABLEMENT = "delta.inCommitTimestampEnablement"

#: Names, or prefixes of names, that a table sets by itself.
KEPT_BY_ITSELF = (
    "delta.columnMapping.maxColumnId",
    f"{ENABLEMENT}Timestamp",
    f"{ENABLEMENT}Version",
    "delta.requireCheckpointProtectionBeforeVersion",
    "delta.rowTracking.",
)

_OTHER = (
    "delta.setTransactionRetentionDuration",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
)
_ALL = (*_KNOWN, *_ONLY_FALSE, *KEPT_BY_ITSELF, *_REFUSED, *_OTHER)
_CANONICAL = {name.lower(): name for name in _ALL}


# --------------------------------------------------------------------- requests


def split_properties(properties: Mapping[str, str], table: str) -> tuple[dict[str, str], set[str]]:
    """Return properties to store, and features requested by ``delta.feature.<name> = supported``.

    Names that Delta knows are accepted in any case, as Spark accepts them, and stored in
    Delta's own.

    Raises
    ------
    InvalidOperation
        A name is not Delta's, or may not be set, or its value has no meaning there.
    UnsupportedTableFeature
        A property, or a feature, requests something that LakeVilla does not do.
    """
    configuration: dict[str, str] = {}
    features: set[str] = set()
    for given, value in properties.items():
        name = canonical_name(given)
        if name.startswith(_FEATURE):
            features.add(_feature(name.removeprefix(_FEATURE), value, table))
            continue
        if is_upkeep(name):
            check_upkeep(name, value, table)
        stored = _checked(name, value, table) if name.startswith("delta.") else value
        if configuration.setdefault(name, stored) != stored:
            raise InvalidOperation(
                f"property {name} of table {table} is given twice, as {configuration[name]!r} and "
                f"{stored!r}: give it once",
                table=table,
            )
    return configuration, features


def canonical_names(names: Iterable[str]) -> list[str]:
    """Return names as they are stored: names that Delta knows in Delta's spelling."""
    return [canonical_name(name) for name in names]


def canonical_name(name: str) -> str:
    """Return a name as it is stored."""
    lower = name.lower()
    for prefix in (CONSTRAINT, _FEATURE):
        if lower.startswith(prefix):
            return prefix + name[len(prefix) :]
    if lower.startswith("delta."):
        return _CANONICAL.get(lower, "delta." + name[len("delta.") :])
    return name


def _checked(name: str, value: str, table: str) -> str:
    """Return the value to store under a name that begins with ``delta.``."""
    if name.startswith(CONSTRAINT):
        return value
    _refuse(name, value, table)
    check, allowed = _KNOWN.get(name, _FLAG)
    stored = check(value)
    if stored is None:
        raise InvalidOperation(
            f"property {name} of table {table} cannot be {shown(value)}: it may be {allowed}",
            table=table,
        )
    if name in _ONLY_FALSE and stored == "true":
        raise UnsupportedTableFeature(
            f"property {name} of table {table} requests {_ONLY_FALSE[name]}, which LakeVilla does "
            "not write; leave it out, or let another client write the table",
            table=table,
        )
    return stored


def _refuse(name: str, value: str, table: str) -> None:
    """Raise for a name that may not be set at all."""
    request = next((what for start, what in _REFUSED.items() if _begins(name, start)), None)
    if request is not None:
        raise UnsupportedTableFeature(
            f"property {name} of table {table} requests {request}, which LakeVilla does not do; "
            "leave it out, or let another client write the table",
            table=table,
        )
    if name == "delta.setTransactionRetentionDuration":
        why = "cannot be set: the log would forget what LakeVilla has published; leave it out"
    elif name in ("delta.minReaderVersion", "delta.minWriterVersion"):
        why = "cannot be set: name features instead, delta.feature.<name> = supported"
    elif is_kept_by_itself(name):
        why = "cannot be set: the table keeps it by itself; leave it out"
    elif name not in _KNOWN and name not in _ONLY_FALSE:
        near = get_close_matches(name.lower(), list(_CANONICAL), n=3)
        offered = " or ".join(_CANONICAL[one] for one in near if not one.endswith("."))
        hint = f"did you mean {offered}?" if offered else "leave it out"
        why = f"is not known to delta: {hint} (names of your own do not begin with delta.)"
    else:
        return
    raise InvalidOperation(f"property {name} of table {table} {why}", table=table)


def is_kept_by_itself(name: str) -> bool:
    """Return whether a table sets the property by itself."""
    return any(_begins(name, start) for start in KEPT_BY_ITSELF)


def lineage_key(part: str) -> str:
    """Return the property that names the column of one of ``LINEAGE_PARTS``."""
    return f"{LINEAGE}{part}ColumnName"


def refuse_suspended(configuration: Mapping[str, str], table: str) -> None:
    """Raise ``InvalidOperation`` where row tracking would be enabled and suspended at once."""
    if all(configuration.get(name, "").lower() == "true" for name in (TRACKS, SUSPENDED)):
        raise InvalidOperation(
            f"table {table} can't have {SUSPENDED} = true while {TRACKS} = true: new rows would "
            f"get no row ids; set {TRACKS} = false first",
            table=table,
        )


def _begins(name: str, start: str) -> bool:
    return name.startswith(start) if start.endswith(".") else name == start


#: Features of Delta that LakeVilla does not honour; listed to distinguish them from misspelt ones.
_FOREIGN_FEATURES = (
    "catalogManaged",
    "catalogOwned-preview",
    "collations",
    "coordinatedCommits-preview",
    "icebergCompatV1",
    "icebergCompatV2",
    "icebergCompatV3",
    "icebergWriterCompatV1",
    "icebergWriterCompatV3",
    "materializePartitionColumns",
    "variantShredding",
    "variantShredding-preview",
)


def _feature(name: str, value: str, table: str) -> str:
    if name in _FOREIGN_FEATURES or name.lower() == VIEW.lower():
        raise UnsupportedTableFeature(
            f"LakeVilla does not honour the delta table feature {name}: leave it out of the "
            f"properties of table {table}",
            table=table,
        )
    known = {feature.lower(): feature for feature in WRITER_FEATURES | READER_FEATURES}
    feature = known.get(name.lower())
    if feature is None:
        near = get_close_matches(name.lower(), known, n=2)
        offered = " or ".join(known[one] for one in near)
        raise InvalidOperation(
            f"LakeVilla does not know the delta table feature {name!r}: "
            + (f"did you mean {offered}?" if near else "leave it out")
            + f" (table {table})",
            table=table,
        )
    if value.lower() not in ("supported", "enabled"):
        raise InvalidOperation(
            f"property {_FEATURE}{feature} of table {table} cannot be {shown(value)}: it may be "
            "supported",
            table=table,
        )
    return feature


# ---------------------------------------------------------------- requirements for a table

# Properties that enable a feature when they are set to true.
_FEATURE_OF_FLAG = {
    "delta.appendOnly": "appendOnly",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableTypeWidening": "typeWidening",
}


def features_of(fields: Iterable[Field], configuration: Mapping[str, str]) -> set[str]:
    """Return the features that a schema and its properties need."""
    found = needed_features(list(fields))
    for key, value in configuration.items():
        if value.lower() == "true" and key in _FEATURE_OF_FLAG:
            found.add(_FEATURE_OF_FLAG[key])
        if key.startswith(CONSTRAINT):
            found.add("checkConstraints")
    if configuration.get("delta.columnMapping.mode", "none").lower() != "none":
        found.add("columnMapping")
    if configuration.get("delta.checkpointPolicy", "classic").lower() == "v2":
        found.add("v2Checkpoint")
    if VIEW_PROPERTY in configuration:
        found.add(VIEW)
    return found


# ------------------------------------------------------- where in-commit timestamps begin


def enablement(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that record where a log's in-commit timestamps begin."""
    return {key: value for key, value in configuration.items() if key.startswith(ENABLEMENT)}


def with_enablement(metadata: Mapping[str, Any], recorded: Mapping[str, str]) -> dict[str, Any]:
    """Return metadata in which ``recorded`` replaces the properties that ``enablement`` returns."""
    configuration = metadata.get("configuration") or {}
    kept = {key: value for key, value in configuration.items() if not key.startswith(ENABLEMENT)}
    return {**metadata, "configuration": {**kept, **recorded}}


# ------------------------------------------------------------------------ reading values

_BYTES = re.compile(r"(?P<number>\d{1,18})\s*(?P<unit>[kmgt]?)b?")


def file_size(text: str | None) -> int | None:
    """Return ``128mb`` and the like in bytes; None if it is unset or can't be read."""
    match = _BYTES.fullmatch(text.strip().lower()) if text else None
    if match is None:
        return None
    size = int(match["number"]) * (1 << 10 * " kmgt".index(match["unit"] or " "))
    return min(max(size, 1), 2**63 - 1)  # Arrow compares sizes in 64 bits


_UNITS = {
    "nanosecond": 1e-6,
    "microsecond": 1e-3,
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}


def interval_milliseconds(text: str | None, default: int) -> int:
    """Return a property such as ``interval 1 week 12 hours``, in milliseconds.

    A text that cannot be read counts as ``default``.
    """
    words = (text or "").lower().split()
    found = _milliseconds(words[1:] if words[:1] == ["interval"] else words)
    return default if found is None else found


def _milliseconds(words: list[str]) -> int | None:
    if not words or len(words) % 2:
        return None
    total = 0.0
    for amount, unit in zip(words[::2], words[1::2], strict=True):
        factor = _UNITS.get(unit.removesuffix("s"))
        if factor is None or not re.fullmatch(r"\d{1,18}", amount):
            return None
        total += int(amount) * factor
    return int(total)

"""The features that a Delta table requires of readers and writers, and those LakeVilla honours.

A table names the required features by versions (up to reader 2 and writer 6) or by
features (reader 3, writer 7). In both cases this module returns a set of feature
names. LakeVilla honours each of them, or refuses the table and names the feature.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from lakevilla.errors import CorruptObject, UnsupportedTableFeature
from lakevilla.formats.base import Change

#: The writer feature that makes every other client refuse to write.
GUARD = "lakevilla"
#: The feature of a view, which makes every other client refuse to read what has no rows.
VIEW = "lakevillaView"

#: Features that also bind readers, and that LakeVilla honours when it reads.
#:
#: Variants are honoured where no column is one: deltalake lists ``variantType`` for every
#: table that it creates with deletion vectors, and the feature requires nothing of other columns.
#: A column of that type is refused with its schema (``schema.parse_schema``).
#: docs/upstream.md, "A table with deletion vectors requires variants"
READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
        VIEW,
    }
)

#: Features that LakeVilla honours when it writes.
#:
#: ``generatedColumns``, ``identityColumns`` and ``allowColumnDefaults`` are
#: honoured where no column uses them (``schema.check_columns_for_writing``).
#: ``checkpointProtection`` binds clients that clean up the log, which LakeVilla never does.
WRITER_FEATURES = READER_FEATURES | {
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "checkpointProtection",
    "clustering",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "inCommitTimestamp",
    "invariants",
    "rowTracking",
    GUARD,
}

# Features that bind readers too; they decide where a feature must be listed.
_READER_WRITER = READER_FEATURES | {
    "catalogManaged",
    "catalogOwned-preview",
    "variantShredding",
    "variantShredding-preview",
}

# The features that each legacy writer version adds to the version before it.
_LEGACY_WRITER = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}

# Some features require other features.
_NEEDS = {"rowTracking": ("domainMetadata",), "clustering": ("domainMetadata",)}

_CATALOG = frozenset({"catalogManaged", "catalogOwned-preview"})


def protocol_of(features: Iterable[str]) -> dict[str, Any]:
    """Return the lowest protocol that names ``features``: reader 1, writer 2 if possible."""
    base: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    return with_features(base, features)


def with_features(protocol: Mapping[str, Any], features: Iterable[str]) -> dict[str, Any]:
    """Return ``protocol`` with ``features``; raise the reader version only if one needs it."""
    wanted = set(features)
    for feature in tuple(wanted):
        wanted.update(_NEEDS.get(feature, ()))
    present = writer_features(protocol)
    missing = wanted - present
    if not missing:
        return dict(protocol)
    result = dict(protocol)
    result["minWriterVersion"] = 7
    result["writerFeatures"] = sorted(present | wanted)
    readers = missing & _READER_WRITER
    if readers:
        result["minReaderVersion"] = 3
        result["readerFeatures"] = sorted(reader_features(protocol) | readers)
    return result


def without_feature(protocol: Mapping[str, Any], feature: str) -> dict[str, Any]:
    """Return ``protocol`` without a feature that it lists."""
    lists = ("readerFeatures", "writerFeatures")
    kept = {name: [x for x in protocol.get(name, ()) if x != feature] for name in lists}
    return {**protocol, **{name: kept[name] for name in lists if name in protocol}}


def reader_features(protocol: Mapping[str, Any]) -> frozenset[str]:
    """Return the features that a reader must honour."""
    version = _version(protocol, "minReaderVersion")
    if version >= 3:
        return frozenset(_names(protocol, "readerFeatures"))
    return frozenset({"columnMapping"} if version == 2 else ())


def writer_features(protocol: Mapping[str, Any]) -> frozenset[str]:
    """Return the features that a writer must honour, those of legacy versions by their names.

    Column mapping binds readers, too: a table of reader version 1 can't use it, though writer
    versions 5 and 6 include it. deltalake refuses a table that lists it for writers alone.
    """
    version = _version(protocol, "minWriterVersion")
    if version >= 7:
        names = frozenset(_names(protocol, "writerFeatures"))
    else:
        legacy = (names for step, names in _LEGACY_WRITER.items() if step <= version)
        names = frozenset(chain.from_iterable(legacy))
    return names if _version(protocol, "minReaderVersion") > 1 else names - {"columnMapping"}


def check_features_for_reading(protocol: Mapping[str, Any], table: str) -> None:
    """Raise ``UnsupportedTableFeature`` unless LakeVilla honours all features for readers."""
    features = reader_features(protocol)
    if features & _CATALOG or writer_features(protocol) & _CATALOG:
        raise UnsupportedTableFeature(
            f"table {table} is managed by a catalog (feature catalogManaged): the catalog, not the "
            "log, says what is committed; use it through that catalog",
            table=table,
        )
    _refuse(features - READER_FEATURES, "read", table)
    version = _version(protocol, "minReaderVersion")
    if version > 3:
        raise UnsupportedTableFeature(
            f"table {table} requires delta reader version {version}, LakeVilla knows up to 3; "
            "upgrade LakeVilla",
            table=table,
        )


def check_features_for_writing(protocol: Mapping[str, Any], table: str) -> None:
    """Raise ``UnsupportedTableFeature`` unless LakeVilla honours all features for writers."""
    check_features_for_reading(protocol, table)
    _refuse(writer_features(protocol) - WRITER_FEATURES, "write", table)
    version = _version(protocol, "minWriterVersion")
    if version > 7:
        raise UnsupportedTableFeature(
            f"table {table} requires delta writer version {version}, LakeVilla knows up to 7; "
            "upgrade LakeVilla",
            table=table,
        )


def is_guarded(protocol: Mapping[str, Any]) -> bool:
    """Return whether the writer feature ``lakevilla`` is on."""
    return GUARD in writer_features(protocol)


def guard_change(protocol: Mapping[str, Any]) -> Change:
    """Return the change that guards a table; an empty one if it is guarded."""
    if is_guarded(protocol):
        return Change()
    return Change(protocol=with_features(protocol, (GUARD,)))


def unguard_change(protocol: Mapping[str, Any]) -> Change:
    """Return the change that lifts the guard; an empty one if there is none.

    A table that has exactly the features of a legacy version returns to that
    version, so that clients without table features can write it again.
    """
    if not is_guarded(protocol):
        return Change()
    features = writer_features(protocol) - {GUARD}
    result = dict(protocol)
    result["writerFeatures"] = sorted(features)
    if _version(protocol, "minReaderVersion") < 3:
        legacy: set[str] = set()
        for version, names in _LEGACY_WRITER.items():
            legacy.update(names)
            if legacy == features:
                result["minWriterVersion"] = version
                del result["writerFeatures"]
                break
    return Change(protocol=result)


def _refuse(features: frozenset[str], verb: str, table: str) -> None:
    if features:
        names = ", ".join(sorted(features))
        raise UnsupportedTableFeature(
            f"LakeVilla cannot {verb} table {table}: it requires the delta table feature {names}; "
            "drop the feature with the client that set it, or use that client",
            table=table,
        )


def _version(protocol: Mapping[str, Any], name: str) -> int:
    value = protocol.get(name)
    if not isinstance(value, int):
        raise CorruptObject(f"a protocol action has no {name}; restore the table's log")
    return value


def _names(protocol: Mapping[str, Any], name: str) -> list[str]:
    value = protocol.get(name)
    return [str(item) for item in value] if isinstance(value, list) else []

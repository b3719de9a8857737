"""The library's parsers of bytes from a store, given one damaged object each.

Thousands of inputs a second; `objects` sees what the verbs of a lake make of the same damage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakevilla.formats.delta.actions import entry_with_faults
from lakevilla.formats.delta.deletion_vectors import decode_bitmap, decode_z85, encode_bitmap
from lakevilla.formats.iceberg import log as iceberg_log
from lakevilla.formats.iceberg.manifests.manifests import decode_list, decode_manifest
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition
from lakevilla.formats.iceberg.metadata.file import decode_metadata, definition_of
from lakevilla.global_log.bases import Base
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import Head, Page
from lakevilla.global_log.keys import KeyRecord
from lakevilla.global_log.repo import LakeFile
from lakevilla.markers.marker import read_marker
from lakevilla.store.codec import decode
from lakevilla.sublogs.record import Sublog, TxnRecord
from lakevilla_testing.fuzzing import damage
from lakevilla_testing.fuzzing.choices import Choices
from lakevilla_testing.fuzzing.faults import Fault, faults_of
from lakevilla_testing.fuzzing.lakes import KINDS, lake_of
from lakevilla_testing.fuzzing.stored import Parser, rare_parsers


class Parsed(NamedTuple):
    """An input: a damaged object for a parser."""

    parser: str
    how: str
    body: bytes


def input_of(data: bytes) -> Parsed:
    """Return the input that some bytes decide."""
    choices = Choices(data)
    known = parsers()
    name = choices.one_of(sorted(known))
    one = known[name]
    others = [other.body for other in known.values() if other.key[-5:] == one.key[-5:]]
    made, how = damage.damaged(one.key, one.body, choices, others)
    return Parsed(name, how, made)


def judge(given: Parsed) -> list[Fault]:
    """Return what the parser of an input should not have done."""
    one = parsers()[given.parser]
    found, result, failed = faults_of(given.parser, lambda: _plain(one.parse(given.body)))
    shows = given.how in ("cut", "count changed") and given.parser.split()[0] not in _UNFRAMED
    if shows and not failed and result != _sound(given.parser):
        found.append(Fault("less than the bytes say", given.parser, repr(result)[:500]))
    return found


#: Texts that may be shorter and sound: a hint proves nothing, a vector has a length, base64 an end.
_UNFRAMED = frozenset({"hint", "z85", "token"})


@cache
def _sound(name: str) -> Any:
    one = parsers()[name]
    return _plain(one.parse(one.body))


def _plain(value: Any) -> Any:
    """Return a value that can be compared."""
    if isinstance(value, pa.Table):
        return value.to_pylist()
    return value.tolist() if isinstance(value, np.ndarray) else value


@cache
def parsers() -> Mapping[str, Parser]:
    """Return the parsers by name."""
    found: dict[str, Parser] = {}
    for kind in KINDS:
        objects = lake_of(kind)
        for key, body in sorted(objects.items()):
            for name, (part, end, parse) in STORED.items():
                if part in key and key.endswith(end):
                    found.setdefault(f"{name} ({kind})", Parser(key, body, parse(key)))
        if kind.startswith("iceberg"):
            found |= _of_iceberg(kind, objects)
    rows = np.concatenate([np.arange(3), np.arange(70_000, 80_000), np.arange(5) + (1 << 33)])
    found["bitmap"] = Parser("v.bin", encode_bitmap(rows), lambda body: decode_bitmap(body, 20_000))
    found |= rare_parsers()
    found["z85"] = Parser("v", b"^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", _z85)
    return found


def _z85(body: bytes) -> bytes:
    return decode_z85(body.decode(errors="replace"))


def _struct(kind: Any) -> Callable[[str], Callable[[bytes], Any]]:
    return lambda key: lambda body: decode(key, body, kind)


def _marker(key: str) -> Callable[[bytes], Any]:
    return lambda body: read_marker(key, "t", int(key[-25:-5]), body)


#: The parsers of a lake's own objects: part and end of the key, and the parser for a key.
STORED: dict[str, tuple[str, str, Callable[[str], Callable[[bytes], Any]]]] = {
    "HEAD": ("_lakevilla/HEAD", ".json", _struct(Head)),
    "page": ("_lakevilla/pages/", ".json", _struct(Page)),
    "base": ("_lakevilla/bases/", ".json", _struct(Base)),
    "commit": ("_lakevilla/commits/", ".json", _struct(CommitObject)),
    "key": ("_lakevilla/keys/", ".json", _struct(KeyRecord)),
    "claim": ("/_lakevilla/lake", ".json", _struct(LakeFile)),
    "record": ("_lakevilla/txns/", "000000.json", _struct(TxnRecord)),
    "sublog": ("000000/", ".json", _struct(Sublog)),
    "marker": ("/markers/", ".json", _marker),
    "entry": (
        "t/_delta_log/",
        "7.json",
        lambda key: lambda body: entry_with_faults(7, key, body),
    ),
    "hint": ("t/metadata/version-hint", "", lambda _: iceberg_log._version_in),
}


def _of_iceberg(kind: str, objects: Mapping[str, bytes]) -> dict[str, Parser]:
    newest = max(key for key in objects if key.startswith("t/metadata/v") and key.endswith(".json"))
    metadata = decode_metadata(newest, "t", objects[newest])
    definition = IcebergDefinition("t", "t", definition_of(metadata))
    snapshot = metadata.current
    assert snapshot is not None
    listed = "t/metadata/" + str(snapshot["manifest-list"]).rpartition("/")[2]
    manifest = decode_list(listed, "t", objects[listed])[-1]
    key = "t/metadata/" + str(manifest.manifest_path).rpartition("/")[2]

    def whole(body: bytes) -> Any:
        return definition_of(decode_metadata(newest, "t", body))

    return {
        f"metadata ({kind})": Parser(newest, objects[newest], whole),
        f"manifest list ({kind})": Parser(
            listed, objects[listed], lambda body: [repr(m) for m in decode_list(listed, "t", body)]
        ),
        f"manifest ({kind})": Parser(
            key, objects[key], lambda body: decode_manifest(key, body, manifest, definition)
        ),
    }

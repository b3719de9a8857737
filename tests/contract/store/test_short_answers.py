"""A store that has, or answers, a part of an object and calls it the whole: no row is wrong."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from pyiceberg.transforms import IdentityTransform

import lakevilla as lv
from lakevilla.errors import CorruptObject
from tests.support.places import Place
from tests.support.tables import accounts, bag


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A lake whose table has rows of several commits, by its root."""
    kind: Literal["delta", "iceberg"] = request.param
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", accounts(3), format=kind)
        lake.run(lambda txn: txn.append("t", accounts(2, 7)))
        lake.run(lambda txn: txn.delete("t", "id = 1"))
    return tmp_path


def read(root: Path) -> Counter[tuple[int, int]]:
    with lv.connect(str(root)) as lake:
        return bag(lake.read("t"))


def ends(body: bytes) -> set[int]:
    """Return where an object may be cut: behind each line, and in its middle."""
    return {index + 1 for index, byte in enumerate(body[:-1]) if byte == 10} | {len(body) // 2}


def outcome(root: Path) -> Counter[tuple[int, int]] | str:
    """Return what a read returns, or the message by which it refuses an object."""
    try:
        return read(root)
    except CorruptObject as error:
        return error.message


def test_a_read_of_a_log_that_was_cut_is_right_or_names_the_object(lake: Path) -> None:
    want = read(lake)
    refused = 0
    logs = {path for kind in ("*.json", "*.avro") for path in (lake / "t").rglob(kind)}
    for path in sorted({lake / "_lakevilla" / "HEAD.json", *logs}):
        body = path.read_bytes()
        for end in ends(body):
            path.write_bytes(body[:end])
            found = outcome(lake)
            if found != want:
                assert isinstance(found, str), f"{path} cut at {end}: {found}"
                assert path.name in found
                refused += 1
        path.write_bytes(body)
    assert refused >= 4
    assert read(lake) == want


def test_a_manifest_that_was_cut_off_between_two_blocks_is_refused(tmp_path: Path) -> None:
    place = Place(str(tmp_path), format="iceberg")
    schema = pa.schema([("id", pa.int64()), ("balance", pa.int64())])
    made = place.catalog().create_table(("t",), schema)
    with made.update_spec() as spec:
        spec.add_field("id", IdentityTransform(), "part")
    made.append(pa.Table.from_pylist(accounts(3), schema))
    assert len(read(tmp_path)) == 3
    (manifest,) = (tmp_path / "t" / "metadata").glob("*-m0.avro")
    body = manifest.read_bytes()
    mark = body[-16:]  # between blocks, as at the end; pyiceberg gives each file a block
    cuts = [found.end() for found in re.finditer(re.escape(mark), body)][:-1]
    assert len(cuts) == 3
    for count, end in enumerate(cuts):
        manifest.write_bytes(body[:end])
        assert (
            f"{manifest.name} of table t has {count} of its 3 entries, and {end} of its "
            f"{len(body)} bytes"
        ) in str(outcome(tmp_path))

"""Requests that the Spark engine refuses before it uses a session."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.spark import SparkEngine
from lakevilla.formats.layout import Layout


def test_reuse_of_files_by_key_is_refused_on_spark() -> None:
    nothing: Any = None
    engine = SparkEngine(nothing, nothing, nothing, nothing)
    schema = pa.schema([("id", pa.int64())])
    layout = Layout("bank", "bank", schema, schema, False, (), (), (), {})
    with pytest.raises(lv.InvalidOperation, match="reuse_by needs the embedded engine"):
        engine.write_by_key(layout, nothing, ["id"], [], nothing)

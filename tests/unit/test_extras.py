"""What an extra brings may be missing: all that does without it works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WITHOUT_PYICEBERG = """
import sys
sys.modules["pyiceberg"] = None  # as if it were not installed
import lakevilla as lv
with lv.connect(sys.argv[1]) as lake:
    lake.create_table("t", [{"a": 1}])
    with lake.transaction() as txn:
        txn.update("t", {"a": "a + 1"}, where="a = 1")
    assert lake.snapshot().read("t").to_pylist() == [{"a": 2}]
    try:
        lake.create_table("u", [{"a": 1}], format="iceberg")
    except lv.InvalidOperation as error:
        print(error)
"""


def test_delta_tables_need_no_pyiceberg(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_PYICEBERG, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "pip install lakevilla[iceberg]" in said.stdout

"""Rows with the words that the system has for a full disk, such as those of a log."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import lakevilla as lv


@pytest.mark.parametrize(
    "text",
    [*map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EROFS)), "max_temp_directory_size"],
)
def test_a_value_of_a_row_is_not_taken_for_the_state_of_a_disk(tmp_path: Path, text: str) -> None:
    with lv.connect(str(tmp_path)) as lake:
        lake.run(lambda txn: txn.create_table("t", {"id": "long", "message": "string"}))
        lake.run(lambda txn: txn.append("t", [{"id": 1, "message": text}]))
        with pytest.raises(lv.InvalidOperation, match="could not convert"):
            lake.sql("SELECT CAST(message AS INTEGER) FROM t")
        with pytest.raises(lv.InvalidOperation, match="cannot cast to long"):
            lake.run(lambda txn: txn.update("t", {"id": "cast(message AS long)"}, where="true"))

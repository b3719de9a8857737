"""The names of data files: whose they are, and by which kind of commit point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakevilla.engines.base import FileNamer

if TYPE_CHECKING:
    from lakevilla.transaction.context import Context

__all__ = ["file_namer", "file_path"]


def file_path(partition: str, txn: str, through_head: bool, nonce: str) -> str:
    """A data file's path: its name says whose it is, and by which kind of commit point.

    Files of transactions that commit by their own log entry can't be fenced,
    so nobody but VACUUM ever deletes those.
    """
    kind = "h" if through_head else "l"
    name = f"lv-{kind}-{txn}-{nonce}.parquet"
    return f"{partition}/{name}" if partition else name


def file_namer(context: Context, txn: str, through_head: bool) -> FileNamer:
    return lambda partition: file_path(partition, txn, through_head, context.ids.nonce()[:16])

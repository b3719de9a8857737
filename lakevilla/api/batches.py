"""Batches of a stream: each is one transaction, and takes effect once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakevilla.api.lake import Lake
    from lakevilla.api.transaction import Transaction

__all__ = ["BatchFunction"]


@dataclass(frozen=True)
class BatchFunction:
    """What Spark calls with each batch of a query and its number.

    On Spark Connect it is pickled and called beside the server; the lake it holds opens
    anew there, by its arguments.
    """

    lake: Lake
    fn: Callable[[Transaction, Any], object]
    query_id: str
    options: Mapping[str, Any]

    def __call__(self, batch: Any, batch_id: int) -> None:
        # The batch's session may be another than the lake's: a stream clones its own.
        with self.lake.beside(batch):
            self.lake.run(
                self.fn, batch, idempotency_key=(self.query_id, int(batch_id)), **self.options
            )

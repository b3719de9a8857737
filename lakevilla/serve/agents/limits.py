"""Limits of one call of an agent's tool."""

from __future__ import annotations

from dataclasses import dataclass

from lakevilla.api.session.session import limits_of
from lakevilla.engines.statistics import StatementLimits


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """Limits of each call.

    Attributes
    ----------
    rows : int
        An answer has so many rows; others are left out, and the answer says so.
    characters : int
        The rows of an answer have so many characters of JSON; others are left out as well.
    seconds : float
        A statement is interrupted after this time.
    result_bytes : int
        What a query finds takes so many bytes as Arrow; a query that finds more is refused.
    written_bytes : int
        The same for a query whose rows a statement writes.
    """

    rows: int = 200
    characters: int = 50_000
    seconds: float = 30.0
    result_bytes: int = 8 << 20
    written_bytes: int = 256 << 20

    @property
    def of_reading(self) -> StatementLimits:
        """The limits of a statement that reads: one row more than an answer has."""
        return limits_of(
            {
                "max_rows": self.rows + 1,
                "max_bytes": self.result_bytes,
                "timeout_seconds": self.seconds,
            }
        )

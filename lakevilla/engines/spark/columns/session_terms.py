"""What a session's settings make of the meaning of its columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UTC = frozenset({"UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "+00:00", "UTC+0", "GMT+0", "Etc/UCT"})


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """Settings of a session.

    Attributes
    ----------
    zone : str
        In which Spark reads the dates and hours of timestamps. The lake reads them in UTC.
    ansi : bool
        Whether overflows and failing casts raise, as they do in the lake.
    zoned : bool
        Whether the type ``timestamp`` is one with a zone.
    """

    zone: str = "UTC"
    ansi: bool = True
    zoned: bool = True

    @property
    def is_utc(self) -> bool:
        return self.zone in _UTC

    @classmethod
    def of(cls, session: SparkSession) -> SessionTerms:
        get = session.conf.get
        return cls(
            str(get("spark.sql.session.timeZone")),
            str(get("spark.sql.ansi.enabled", "true")).lower() == "true",
            str(get("spark.sql.timestampType", "TIMESTAMP_LTZ")).upper() != "TIMESTAMP_NTZ",
        )

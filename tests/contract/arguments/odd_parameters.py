"""Parameters that are no plain value: NaN, infinities, and times with and without a zone."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

NAN, INFINITE = math.nan, math.inf
NOON = datetime(2024, 1, 1, 12)

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5], pa.int64()),
        "f": pa.array([1.0, NAN, INFINITE, -INFINITE, None], pa.float64()),
        "g": pa.array([1.0, NAN, INFINITE, -INFINITE, None], pa.float32()),
        "n": pa.array([1, 2**62, -(2**63), 0, None], pa.int64()),
        "d": pa.array([Decimal(1), Decimal("9999999.99"), Decimal(-1), Decimal(0), None]).cast(
            pa.decimal128(9, 2)
        ),
        "moment": pa.array([NOON, NOON + timedelta(hours=1), None, NOON, None]).cast(
            pa.timestamp("us", tz="UTC")
        ),
        "local": pa.array([NOON, NOON + timedelta(hours=1), None, NOON, None]),
    }
)

#: Predicates, values of their parameters, and the rows that match.
FOUND: list[tuple[str, Any, list[int]]] = [
    ("f = :v", NAN, [2]),
    ("f <> :v", NAN, [1, 3, 4]),
    ("f < :v", NAN, [1, 3, 4]),
    ("f > :v", INFINITE, [2]),
    ("f = :v", INFINITE, [3]),
    ("f <= :v", -INFINITE, [4]),
    ("f < :v", -INFINITE, []),
    ("f in :v", [NAN, 1.0], [1, 2]),
    ("f not in :v", [NAN, 1.0], [3, 4]),
    ("f = :v", np.float32("nan"), [2]),
    ("g = :v", NAN, [2]),
    ("g >= :v", INFINITE, [2, 3]),
    ("isnan(f) and f = :v", np.float64("nan"), [2]),
    ("n = :v", NAN, []),
    ("n < :v", NAN, [1, 2, 3, 4]),
    ("n < :v", INFINITE, [1, 2, 3, 4]),
    ("n > :v", -INFINITE, [1, 2, 3, 4]),
    ("d = :v", NAN, []),
    ("d < :v", INFINITE, [1, 2, 3, 4]),
    ("d <= :v", -INFINITE, []),
    ("f = :v", None, []),
    ("f <=> :v", None, [5]),
    ("f = :v", pd.NA, []),
    ("moment = :v", pd.NaT, []),
    ("moment = :v", np.datetime64("NaT"), []),
    ("moment <=> :v", pd.NaT, [3, 5]),
    ("moment = :v", NOON.replace(tzinfo=UTC), [1, 4]),
    ("moment = :v", datetime(2024, 1, 1, 14, tzinfo=timezone(timedelta(hours=1))), [2]),
    ("moment = :v", pd.Timestamp("2024-01-01 13:00", tz="Europe/Berlin"), [1, 4]),
    ("moment = :v", "2024-01-01 12:00:00", [1, 4]),
    ("moment = :v", "2024-01-01 13:00:00+01:00", [1, 4]),
    ("moment > :v", date(2024, 1, 1), [1, 2, 4]),
    ("moment < :v", date(2024, 1, 1), []),
    ("local = :v", NOON, [1, 4]),
    ("local = :v", pd.Timestamp("2024-01-01 13:00"), [2]),
    ("local = :v", np.datetime64("2024-01-01T13:00"), [2]),
    ("local = :v", "2024-01-01 12:00:00", [1, 4]),
    ("local > :v", date(2024, 1, 1), [1, 2, 4]),
    ("cast(:v as timestamp) = moment", NOON, [1, 4]),
    ("cast(moment as timestamp_ntz) = :v", NOON, [1, 4]),
]

#: Predicates and values without a single meaning, and the error's text.
REFUSED: list[tuple[str, Any, str]] = [
    ("moment = :v", NOON, "use a datetime with a zone for a timestamp column"),
    ("moment in :v", [NOON], "use a datetime with a zone for a timestamp column"),
    ("moment > :v", pd.Timestamp("2024-01-01"), "use a datetime with a zone"),
    ("moment > :v", np.datetime64("2024-01-01T00:00"), "use a datetime with a zone"),
    ("local = :v", NOON.replace(tzinfo=UTC), "without for a timestamp_ntz column"),
    ("d = :v", Decimal("NaN"), "is Decimal('NaN'), which no decimal column holds: pass float"),
    ("d < :v", Decimal("-Infinity"), "is Decimal('-Infinity'), which no decimal"),
    ("f = :v", Decimal("sNaN"), "is Decimal('sNaN'), which no decimal column holds"),
]

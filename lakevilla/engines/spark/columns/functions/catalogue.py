"""All of them by Spark's names, in small letters."""

from __future__ import annotations

from lakevilla.engines.spark.columns.functions.making import Maker
from lakevilla.engines.spark.columns.functions.moments import MOMENTS
from lakevilla.engines.spark.columns.functions.nested import NESTED
from lakevilla.engines.spark.columns.functions.numbers import NUMBERS
from lakevilla.engines.spark.columns.functions.operators import OPERATORS
from lakevilla.engines.spark.columns.functions.text import TEXT

FUNCTIONS: dict[str, Maker] = {**OPERATORS, **NUMBERS, **TEXT, **MOMENTS, **NESTED}

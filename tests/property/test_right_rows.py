"""Find the rows for which a predicate is true, by reads, updates, deletes and conflict checks.

Each case is a predicate over a table with a history; see the package. A failure names the command
that replays it and makes it smaller.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.property.running import EACH, Failure, Tally, reported, run, shrunk
from tests.support.search import first_seed, how_many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = how_many(20, whole=4000)
ON_SPARK = how_many(3, whole=300)
FIRST = first_seed() * 1000
#: The number of tables of a test; of predicates over one table on Spark, where each takes long.
BLOCK, EACH_ON_SPARK = 4, 6


@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", range(0, CASES // EACH, BLOCK))
def test_a_predicate_finds_the_rows_for_which_it_is_true(block: int) -> None:
    tally: Tally = Counter()
    for seed in range(FIRST + block, FIRST + min(block + BLOCK, CASES // EACH)):
        checked(seed, tally)
    # The draw is useful: most predicates bind, and many find rows.
    assert tally["cases"] > 4 * tally["refused"]
    assert tally["matching"] * 4 > tally["cases"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("table", range(ON_SPARK // EACH_ON_SPARK))
@pytest.mark.seam
def test_a_predicate_finds_the_rows_for_which_it_is_true_on_spark(
    table: int, spark: SparkSession
) -> None:
    how = ("python", "auto")[table // 2 % 2]
    checked(FIRST + table, Counter(), each=EACH_ON_SPARK, beside=1, spark=spark, spark_reader=how)


def checked(seed: int, tally: Tally, **options: object) -> None:
    try:
        run(seed, tally, **options)
    except Failure as failure:
        smaller = failure if "spark" in options else shrunk(failure)
        spark = " --spark" if "spark" in options else ""
        pytest.fail(f"{reported(smaller)}{spark}", pytrace=False)

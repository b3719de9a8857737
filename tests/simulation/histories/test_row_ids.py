"""Histories of Iceberg tables of version 3: no two rows of a table ever have one id."""

from collections import Counter

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import draw_version_3
from tests.support.search import how_many

#: The factor by which there are more histories than in every run.
TIMES = how_many(1, soak=50)


@pytest.mark.timeout(600 * TIMES)
def test_no_two_rows_ever_have_one_id():
    told = Counter()
    for seed in range(how_many(6, whole=40 * TIMES)):
        told += campaign.run(seed, plan=draw_version_3(seed)).events
    assert told["files with ids"] > 50

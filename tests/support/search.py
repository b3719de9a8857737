"""The extent of tests with random input, and the seeds that they begin with.

``make test`` searches little and always the same, ``make test-all`` the whole with the seeds of
the day, ``make soak`` for hours. The options ``--search`` and ``--seeds`` of
`tests.support.selection` set which it is.
"""

from __future__ import annotations

import os
from datetime import date

SEARCH = os.environ["LAKEVILLA_SEARCH"]
#: Whether a test searches enough to require that rare events occur.
WHOLE, SOAK = SEARCH != "small", SEARCH == "soak"


def how_many(small: int, *, whole: int | None = None, soak: int | None = None) -> int:
    """Return how many seeds, schedules or steps a test searches.

    Without a number of its own, ``whole`` is ``small``, and ``soak`` is ``whole``.
    """
    if SOAK and soak is not None:
        return soak
    return whole if WHOLE and whole is not None else small


#: The distance between the crashes of a client that a test runs; at each request there are four
#: kinds of crashes. Four and the stride have no common divisor, so all four kinds occur.
STRIDE = how_many(13, whole=1)


def first_seed() -> int:
    """Return the number that seeds begin with: the fixed one, or that of the run's date."""
    return date.fromisoformat(os.environ["LAKEVILLA_SEEDS"]).toordinal()

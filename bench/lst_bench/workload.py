"""The phases of LST-Bench's W0 and W3, and its data maintenance.

After microsoft/lst-bench: ``src/main/resources/config/spark/tpcds/w0_tpcds-delta.yaml``,
``run/spark-3.3.1/config/tpcds/wp3_rw_concurrency-delta-2.2.0.yaml``, and the scripts that
``data_maintenance_delta`` of ``run/spark-3.3.1/config/tpcds/library.yaml`` names:
``DF_*-merge.sql`` delete, ``LF_*.sql`` insert. Setting up and building are not timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

#: What each single user chooses from: the paper's queries.
QUERIES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 67, 68, 90)


@dataclass(frozen=True, slots=True)
class Phase:
    """Sessions that run at the same time.

    ``users`` are sessions that each run queries; one session runs ``refreshes`` one after the
    other; another one runs OPTIMIZE over all tables.
    """

    users: int = 0
    refreshes: int = 0
    optimizes: bool = False

    @property
    def name(self) -> str:
        parts = [f"{self.users} SU"] if self.users else []
        parts += [f"{self.refreshes} DM"] if self.refreshes else []
        parts += ["O"] if self.optimizes else []
        return " + ".join(parts)


WORKLOADS = {
    "W0": (
        Phase(users=1),
        Phase(users=4),
        Phase(refreshes=2),
        Phase(users=4),
        Phase(refreshes=2),
    ),
    "W3": (
        Phase(users=1, refreshes=2),
        Phase(users=1, optimizes=True),
        Phase(users=1, refreshes=4),
        Phase(users=1, optimizes=True),
        Phase(users=1, refreshes=6),
        Phase(users=1, optimizes=True),
    ),
}


@dataclass(frozen=True, slots=True)
class Channel:
    """A way of selling: a table of sales, and one of returns that name the order they are of."""

    script: str
    sales: str
    date: str
    order: str
    returns: str
    returned: str


CHANNELS = (
    Channel(
        "CS", "catalog_sales", "cs_sold_date_sk", "cs_order_number",
        "catalog_returns", "cr_order_number",
    ),
    Channel(
        "SS", "store_sales", "ss_sold_date_sk", "ss_ticket_number",
        "store_returns", "sr_ticket_number",
    ),
    Channel(
        "WS", "web_sales", "ws_sold_date_sk", "ws_order_number",
        "web_returns", "wr_order_number",
    ),
)  # fmt: skip
INVENTORY, INVENTORY_DATE = "inventory", "inv_date_sk"
#: The tables that data maintenance changes.
FACTS = (*(table for one in CHANNELS for table in (one.sales, one.returns)), INVENTORY)

#: The days on which the generator sells, as its date keys count them: 1998-01-02 on, five years.
_FIRST_DAY, _DAYS = 2450816, 5 * 365


@dataclass(frozen=True, slots=True)
class Refresh:
    """One run of data maintenance: the ranges of date keys that it deletes."""

    number: int
    ranges: tuple[tuple[int, int], ...]


def refresh(number: int, ranges: int, days: int, seed: str) -> Refresh:
    """Ranges of so many days, by the number of the refresh in its workload.

    The scripts have three.
    """
    random = Random(f"{seed}-{number}")
    firsts = [_FIRST_DAY + random.randrange(_DAYS - days) for _ in range(ranges)]
    return Refresh(number, tuple((first, first + days - 1) for first in firsts))


def queries(count: int, seed: str) -> list[int]:
    """The queries of one session, in its order."""
    random = Random(seed)
    return [random.choice(QUERIES) for _ in range(count)]

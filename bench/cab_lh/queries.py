"""The texts of the 22 queries of TPC-H, with any arguments.

DuckDB's generator gives each with the arguments of TPC-H's validation run; those are replaced.
"""

from __future__ import annotations

import re
from datetime import date, timedelta

from bench.cab_lh.arguments import Argument
from bench.cab_lh.streams import Query
from bench.harness.tpc import Tpc

#: The arguments of the validation run (TPC-H 2.4), as CAB gives arguments.
VALIDATED: dict[int, tuple[Argument, ...]] = {
    1: (90,),
    2: (15, "BRASS", "EUROPE"),
    3: ("BUILDING", "1995-03-15"),
    4: ("1993-07-01",),
    5: ("ASIA", "1994-01-01"),
    6: ("1994-01-01", 6, 24),
    7: ("FRANCE", "GERMANY"),
    8: ("BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"),
    9: ("green",),
    10: ("1993-10-01",),
    11: ("GERMANY", 1),
    12: ("MAIL", "SHIP", "1994-01-01"),
    13: ("special", "requests"),
    14: ("1995-09-01",),
    15: ("1996-01-01",),
    16: ("Brand#45", "MEDIUM POLISHED", 49, 14, 23, 45, 19, 3, 36, 9),
    17: ("Brand#23", "MED BOX"),
    18: (300,),
    19: ("Brand#12", "Brand#23", "Brand#34", 1, 10, 20),
    20: ("forest", "1994-01-01", "CANADA"),
    21: ("SAUDI ARABIA",),
    22: (13, 31, 23, 29, 30, 18, 17),
}
#: The price of an order, from its lines, as CAB's 23rd query computes it.
PRICE = (
    "CAST((SELECT sum(l_quantity * p_retailprice * (1 + l_tax) * (1 - l_discount)) "
    "FROM lineitem, part WHERE l_orderkey = o_orderkey AND p_partkey = l_partkey) "
    "AS DECIMAL(15, 2))"
)


class Texts:
    """The queries by number."""

    def __init__(self, made: Tpc) -> None:
        self._validated = {number: " ".join(made.query(number).split()) for number in VALIDATED}

    def as_validated(self, scale: float) -> list[str]:
        """All, with the arguments of the validation run; query 11 has the scale as one."""
        arguments = {**VALIDATED, 11: ("GERMANY", scale)}
        return [self.text(Query(number, 0, given)) for number, given in arguments.items()]

    def text(self, query: Query) -> str:
        """One query with its arguments."""
        old = literals(query.number, VALIDATED[query.number])
        new = dict(zip(old, literals(query.number, query.arguments), strict=True))
        found = re.compile("|".join(map(re.escape, old)))
        return found.sub(lambda match: new[match[0]], self._validated[query.number])


def literals(number: int, arguments: tuple[Argument, ...]) -> list[str]:
    """What stands for the arguments in the text of a query, each as it is written there."""
    text = [f"'{one}'" for one in arguments]
    match number:
        case 1:
            return [f"'{date(1998, 12, 1) - timedelta(days=int(arguments[0]))}'"]
        case 2:
            return [f"p_size = {arguments[0]}", f"'%{arguments[1]}'", text[2]]
        case 4 | 10 | 15:
            return [text[0], _later(arguments[0], 3)]
        case 5:
            return [text[0], text[1], _later(arguments[1], 12)]
        case 6:
            middle = int(arguments[1])
            discount = f"BETWEEN {(middle - 1) / 100:.2f} AND {(middle + 1) / 100:.2f}"
            return [text[0], _later(arguments[0], 12), discount, f"l_quantity < {arguments[2]}"]
        case 9:
            return [f"'%{arguments[0]}%'"]
        case 11:
            return [text[0], f"{0.0001 / float(arguments[1]):.10f}"]
        case 12:
            return [*text, _later(arguments[2], 12)]
        case 13:
            return [f"'%{arguments[0]}%{arguments[1]}%'"]
        case 14:
            return [text[0], _later(arguments[0], 1)]
        case 16:
            sizes = ", ".join(map(str, arguments[2:]))
            return [text[0], f"'{arguments[1]}%'", f"({sizes})"]
        case 18:
            return [f"> {arguments[0]}"]
        case 19:
            quantities = [
                f"l_quantity >= {least} AND l_quantity <= {least} + 10" for least in arguments[3:]
            ]
            return [*text[:3], *quantities]
        case 20:
            return [f"'{arguments[0]}%'", text[1], _later(arguments[1], 12), text[2]]
        case 22:
            return ["(" + ", ".join(text) + ")"]
        case _:
            return text


def _later(first: Argument, months: int) -> str:
    """The first day of a month that is so many months later, quoted."""
    day = date.fromisoformat(str(first))
    month = day.year * 12 + day.month - 1 + months
    return f"'{date(month // 12, month % 12 + 1, 1)}'"

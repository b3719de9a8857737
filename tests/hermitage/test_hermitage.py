"""Hermitage: which anomalies an isolation level and a mix of features let through.

The test cases are those of ``bench/hermitage/cases.py``. ``test`` has the rows (1, 10) and
(2, 20); the -MT variants keep row 2 in a second table. With Feature.R alone a transaction stays
on one table. A column that names two mixes gives the second to every other transaction. Each
line is of Delta tables; the main ones are also run with Iceberg tables, of version 3 too, with row
2 in an Iceberg table and row 1 in a Delta table, and with tables of both formats whose deleted rows
are marked.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.hermitage.cases import ANOMALIES
from bench.hermitage.lakes import RCT, RCTI, RI, Format, LakeLab, Mix, R
from lakevilla.engines.duckdb.writing import rewrite
from lakevilla.engines.duckdb.writing.rewrite import Marks
from tests.support.places import make_place

SNAPSHOT = {"isolation": "snapshot"}
WRITE = {"isolation": "write-serializable"}
RULES = {"validation": "rules"}

#: The columns without -MT, and which transactions they are made of.
MIXES: dict[str, tuple[Mix, ...]] = {
    "R": (Mix(R),),
    "R|I": (Mix(RI),),
    "R|CT": (Mix(RCT),),
    "R|CT|I": (Mix(RCTI),),
    "R|CT,R|I": (Mix(RCT), Mix(RI)),
    "R|I,R|CT": (Mix(RI), Mix(RCT)),
    "R|CT|I,R|I": (Mix(RCTI), Mix(RI)),
    "R|I write": (Mix(RI, WRITE),),
    "R|CT|I write": (Mix(RCTI, WRITE),),
    "R|I rules": (Mix(RI, RULES),),
    "R|I write rules": (Mix(RI, WRITE | RULES),),
    "R snapshot": (Mix(R, SNAPSHOT),),
    "R|I snapshot": (Mix(RI, SNAPSHOT),),
    "R|CT snapshot": (Mix(RCT, SNAPSHOT),),
    "R|CT|I snapshot": (Mix(RCTI, SNAPSHOT),),
    "R|I snapshot rules": (Mix(RI, SNAPSHOT | RULES),),
    "R|I slack": (Mix(RI, {"slack": 1}),),
    "R|I slack rules": (Mix(RI, RULES | {"slack": 1}),),
    "R|I,R|I snapshot": (Mix(RI), Mix(RI, SNAPSHOT)),
    "R|I snapshot,R|I": (Mix(RI, SNAPSHOT), Mix(RI)),
}

COLUMNS = {
    f"{name}{variant}": (mixes, bool(variant))
    for name, mixes in MIXES.items()
    for variant in ("", " -MT")
    if not (variant and mixes[0].features == R)
}

#: Formats of the tables of row 1 and row 2, by what a column's name says of them.
FORMATS: dict[str, tuple[Format, Format]] = {
    "": ("delta", "delta"),
    " iceberg": ("iceberg", "iceberg"),
    " mixed": ("delta", "iceberg"),
    " version 3": ("iceberg", "iceberg"),
    " marked": ("delta", "delta"),
    " vectors": ("iceberg", "iceberg"),
}

#: The properties of the tables, by the same names.
PROPERTIES = {
    " version 3": {"format-version": "3"},
    " marked": {"delta.enableDeletionVectors": "true"},
    " vectors": {
        "format-version": "3",
        **{f"write.{one}.mode": "merge-on-read" for one in ("delete", "update", "merge")},
    },
}

#: The columns that are run with other formats too. What a mix promises does not depend on
#: them, so it is enough that each kind of commit point and of validation is among them.
MAIN = ("R", "R|I", "R|CT|I", "R|I snapshot")

CASES = [
    (column, kind)
    for kind in FORMATS
    for column, (_, two_tables) in COLUMNS.items()
    if not kind or column.removesuffix(" -MT") in MAIN
    if two_tables or kind != " mixed"
]

#: What snapshot isolation admits: write skew, and what a reader sees of one.
SKEW = ("G2-item", "G2", "G2-two-edges")

#: Without Feature.I each table is read as it is when first used: what only reads may
#: see two tables at two moments. What writes is as serializable as all others.
TORN = {("G-single", "R|CT -MT"), ("G-single", "R|CT,R|I -MT"), ("G-single", "R|CT snapshot -MT")}

#: Where write skew is admitted whenever it can be; elsewhere a queue, a rule or the
#: other transaction's own level may stand in its way.
ADMITTED = {
    (anomaly, column)
    for anomaly in SKEW
    for column in COLUMNS
    if column.removesuffix(" -MT") in ("R snapshot", "R|I snapshot", "R|I slack")
}


def is_allowed(anomaly: str, column: str) -> bool:
    """Return whether a transaction of the column has an isolation level that allows it."""
    mixes, _ = COLUMNS[column]
    lenient = any({"isolation": "snapshot"}.items() <= mix.options.items() for mix in mixes)
    lenient |= any("slack" in mix.options for mix in mixes)
    return (anomaly, column) in TORN or (lenient and anomaly in SKEW)


_SEEN: dict[tuple[str, str], bool] = {}


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Prints what was seen, a level a line."""
    yield
    if _SEEN:
        width = max(len(column + kind) for column, kind in CASES)
        lines = [f"{'':{width}}  " + "  ".join(ANOMALIES)]
        cells = {True: "seen", False: "no", None: ""}
        for column, kind in CASES:
            row = "  ".join(
                f"{cells[_SEEN.get((anomaly, column + kind))]:>{len(anomaly)}}"
                for anomaly in ANOMALIES
            )
            lines.append(f"{column + kind:{width}}  {row}")
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print("\n" + "\n".join(lines))


@pytest.mark.parametrize(("column", "kind"), CASES, ids=[a + b for a, b in CASES])
@pytest.mark.parametrize("anomaly", ANOMALIES)
def test_a_level_lets_no_anomaly_through_that_it_does_not_allow(
    anomaly: str,
    column: str,
    kind: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rewrite, "MARKS", Marks(0, 1.0, 2000, 1.0))
    mixes, two_tables = COLUMNS[column]
    place = make_place("memory", request)
    lab = LakeLab(place.connect, mixes, two_tables, FORMATS[kind], PROPERTIES.get(kind, {}))
    seen = ANOMALIES[anomaly](lab)
    _SEEN[anomaly, column + kind] = seen
    if seen:
        assert is_allowed(anomaly, column)
    else:
        assert (anomaly, column) not in TORN | ADMITTED

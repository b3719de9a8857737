"""What is said of a catalog's table names it as its catalog does, and not by its location."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from lakevilla.errors import LakeVillaError
from lakevilla.formats.iceberg.metadata.pointer import name_in_catalog
from lakevilla.global_log.head import TableState, shown_names
from lakevilla.lake.context import Context
from lakevilla.results import Report


def catalog_names(context: Context) -> dict[str, str]:
    """The names of the catalogs' tables that are known here, by location."""
    names = {place: name_in_catalog(key) for place, key in context.catalogs.items()}
    if context.held is not None:
        shown = shown_names(context.held.head)
        tables = context.held.head.tables.at_hand()
        names |= {place: name for place, name in shown.items() if _is_catalogs(tables.get(place))}
    return names


def _is_catalogs(state: TableState | None) -> bool:
    return state is not None and bool(state.catalog)


def name_in_error(error: LakeVillaError, names: Mapping[str, str]) -> None:
    """Have an error name a catalog's table by its name."""
    for location, name in names.items():
        if error.table in (location, name):
            error.message = _renamed(error.message, location, name)
            error.args = (error.message,)
            error.table = name
            return


def named_report(report: Report, names: Mapping[str, str]) -> Report:
    """A report whose findings name the catalogs' tables by their names."""
    findings = tuple(
        replace(
            one,
            table=names[one.table],
            message=_renamed(one.message, one.table, names[one.table]),
        )
        if one.table is not None and one.table in names
        else one
        for one in report.findings
    )
    return replace(report, findings=findings)


def _renamed(message: str, location: str, name: str) -> str:
    whole = rf"\btable ('?){re.escape(location)}\1(?![\w/.-])"
    return re.sub(whole, lambda found: f"table {found[1]}{name}{found[1]}", message)

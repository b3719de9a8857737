"""Parameters as PEP 249 passes them: by name, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from lakevilla.api.parameters import parameters
from lakevilla.dbapi.errors import NotSupportedError, ProgrammingError, translated

Values = Mapping[str, object]


def one_set(operation: str, given: object) -> Mapping[str, object] | None:
    """The parameters of one run of a statement.

    Raises
    ------
    ProgrammingError
        They are given by position, a name is none, or a value is of a type that no column holds.
    NotSupportedError
        It is what pandas asks SQLite when it writes.
    """
    if given is None or (isinstance(given, list | tuple) and not given):
        return None
    if not isinstance(given, Mapping) and "sqlite_master" in operation:
        raise NotSupportedError(
            "pandas writes by a connection of its own kind to SQLite alone: pass "
            "sqlalchemy.create_engine('lakevilla:///path') to to_sql, or append the frame by "
            "lake.run(lambda txn: txn.append(table, frame))"
        )
    with translated():
        return parameters(given, nested=True)


def check_same(names: frozenset[str], given: Mapping[str, object], number: int) -> None:
    """Refuse a set of parameters that has other names than the first."""
    missing, further = sorted(names - given.keys()), sorted(given.keys() - names)
    if missing or further:
        what = [f"lacks {', '.join(missing)}"] if missing else []
        what += [f"has {', '.join(further)} besides"] if further else []
        raise ProgrammingError(
            f"set {number} of parameters {' and '.join(what)}: give each set the names of the first"
        )

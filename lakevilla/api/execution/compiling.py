"""Terms of a statement as an executor reads them; see ``engines.sql.compiling``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from lakevilla.api.execution.sources import Sources
from lakevilla.api.frame import Frame
from lakevilla.sql.expressions.bind import Schemas
from lakevilla.sql.statements.compiling import Compiler
from lakevilla.sql.statements.dml import DeleteStatement, MergeStatement, UpdateStatement
from lakevilla.sql.statements.meaning.duckdb import meaning_in
from lakevilla.sql.statements.merging import merges_of

__all__ = ["compiler_of", "merges"]


def compiler_of(
    executor: Sources[Frame],
    params: Mapping[str, object],
    schemas: Schemas,
    alias: str | None = None,
) -> Compiler:
    """Reads texts that are to mean what they mean in a SELECT of the executor's."""
    meaning = executor.meaning
    return Compiler(
        executor.dialect,
        lambda used: executor.together(used, None, meaning),
        params,
        schemas,
        alias,
    )


def merges(
    executor: Sources[Frame],
    statement: UpdateStatement | DeleteStatement,
    params: Mapping[str, object],
    schema: pa.Schema,
    *,
    by_engine: bool = False,
) -> Iterator[MergeStatement]:
    """What ``merges_of`` gives, with the terms that are expressions compiled.

    In Spark's SQL nothing is held against its meaning, so there none is.
    """
    reading = compiler_of(executor, params, schema, statement.called)
    is_held = meaning_in(executor.dialect) is not None
    return merges_of(
        statement,
        schema,
        executor.dialect,
        lambda text: reading.value(text).tree is None,
        lambda text: reading.term(text).tree if is_held else None,
        by_engine=by_engine,
    )

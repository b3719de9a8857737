"""Names between double backticks in docstrings and comments exist.

A renaming changes code and not prose. Names of other projects are listed here.
"""

from __future__ import annotations

import builtins
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.code import outline, outline_of

#: Parsing the whole code takes seconds, so one worker runs all of these tests.
pytestmark = pytest.mark.xdist_group("code")

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "lakevilla"
MODULES = sorted((*LIBRARY.rglob("*.py"), *(ROOT / "lakevilla_testing").rglob("*.py")))
NAMED = re.compile(r"``([A-Za-z_]\w*)``")
WORD = re.compile(r"[A-Za-z_]\w*")

#: Names from Delta's and Iceberg's specifications and tools, Spark, DuckDB, pyiceberg, boto3 and
#: Python.
_OTHERS = """
commitInfo metaData domainMetadata dataChange partitionValues deletionVector operationMetrics
operationParameters _last_checkpoint _change_type _commit_version _commit_timestamp
update_preimage update_postimage startingVersion boto3_session hadoop iceberg_scan StaticTable
rewrite_data_files rollback_to_snapshot remove_orphan_files purge_table load_catalog
read_parquet ThreadPoolExecutor flock AWS_ENDPOINT_URL aws_region azure_storage_account_name
current_timestamp current_date timestamp_ntz date binary day NA on_event _ x c a_x2Db
"""
OF_OTHERS = frozenset(_OTHERS.split())
#: Tokens with the text of strings; from Python 3.12 on, an f-string's is one of its own.
TEXTS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


@cache
def definitions() -> frozenset[str]:
    """Return the listed names, and those of modules, functions, classes, fields and constants."""
    found = {name for path in MODULES for name in (path.stem, path.parent.name)}
    for path in MODULES:
        there = outline_of(path)
        found |= there.functions | there.classes.keys() | there.assigned
    return frozenset(found) | OF_OTHERS | set(dir(builtins))


def words(source: str) -> set[str]:
    """Return the identifiers of a module and the words of its strings, except docstrings."""
    docstrings = outline(source).docstrings
    found: set[str] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            found.add(token.string)
        elif token.type in TEXTS and token.start[0] not in docstrings:
            found.update(WORD.findall(token.string))
    return found


def unknown(source: str) -> Iterator[str]:
    doubtful = [
        (number, name)
        for number, line in enumerate(source.splitlines(), 1)
        for name in NAMED.findall(line)
        if name not in definitions()
    ]
    here = words(source) if doubtful else set()  # finding the words of a module takes long
    for number, name in doubtful:
        if name not in here:
            yield f"line {number}: {name}"


@pytest.mark.cases(None)
def test_names_in_docstrings_exist() -> None:
    wrong = [f"{path}: {name}" for path in MODULES for name in unknown(path.read_text())]
    assert not wrong, "\n".join(wrong)


def test_a_docstring_with_a_name_that_was_renamed_is_found() -> None:
    source = (
        'def moved(old):\n    """Go on with ``old``; see ``moved`` and ``not_there_any_more``."""\n'
    )
    assert list(unknown(source)) == ["line 2: not_there_any_more"]

"""Texts of users and of agents: SQL, predicates, expressions, names and paths.

An input makes a text from sound ones, word by word, and decides where it is given. As with damaged
objects, a call ends well or raises a ``LakeVillaError``, soon and in little memory. No text asks
for much work, which a statement of a user may.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import lakevilla as lv
from lakevilla_testing.fuzzing.choices import Choices
from lakevilla_testing.fuzzing.faults import Fault, faults_of
from lakevilla_testing.fuzzing.lakes import lake_of, opened, store_of


@dataclass(frozen=True)
class Given:
    """A text, and the name of the call to which it is given."""

    call: str
    text: str


def input_of(data: bytes) -> Given:
    """Return the input that some bytes decide."""
    choices = Choices(data)
    calls = [name for name, (kind, _) in CALLS.items() for _ in range(_WEIGHTS.get(kind, 1))]
    call = choices.one_of(calls)
    sound = choices.one_of(SOUND[CALLS[call][0]])
    return Given(call, changed(sound, choices))


def judge(given: Given) -> list[Fault]:
    """Return what the call of an input should not have done."""
    with warnings.catch_warnings(), opened(store_of(lake_of("delta"))) as lake:
        warnings.simplefilter("ignore")
        found, _, _ = faults_of(given.call, partial(CALLS[given.call][1], lake, given.text))
    return found


def sound_for(call: str) -> Sequence[str]:
    """Return sound texts for a call."""
    return SOUND[CALLS[call][0]]


def changed(text: str, choices: Choices) -> str:
    """Return a text with a few of its words dropped, doubled, or exchanged for others."""
    words = text.split(" ")
    for _ in range(choices.one_of((1, 1, 1, 2, 3))):
        at = choices.number(len(words) + 1)
        match choices.number(6):
            case 0:
                del words[at : at + 1]
            case 1:
                words[at:at] = words[at : at + 1 + choices.number(3)]
            case 2:
                words[at : at + 1] = [choices.one_of(_ODD)]
            case 3:
                words[at:at] = choices.one_of(SOUND["sql"]).split(" ")
            case 4:
                words[at:at] = [choices.one_of(choices.one_of(list(SOUND.values())))]
            case _:
                words[at : at + 1] = [_one_letter(" ".join(words[at : at + 1]), choices)]
    return " ".join(words)


def _one_letter(word: str, choices: Choices) -> str:
    at = choices.number(len(word) + 1)
    return word[:at] + choices.one_of(_LETTERS) + word[at + choices.number(2) :]


_LETTERS = (
    "'",
    '"',
    "(",
    ")",
    ";",
    "--",
    "/*",
    "\\",
    "\0",
    "%",
    ":",
    "$1",
    "?",
    ".",
    "é",
    "\ud800",
)
_ODD = (
    "NULL",
    "(" * 2000,
    "(" * 200 + ")" * 200,
    "NOT " * 3000,
    "-" * 3001 + "1",
    "1 + " * 3000 + "1",
    "a.b.c.d.e",
    "9" * 400,
    "1e999",
    "'" + "x" * 100_000 + "'",
    "CAST(id AS DECIMAL(38, 40))",
    "INTERVAL 99999999999 YEARS",
    "TIMESTAMP '290000-01-01'",
    "DATE '0000-00-00'",
    "'\\xff'::BLOB",
    "[1, 2][99999999999]",
    "repeat('x', 1000000)",
    "range(1000)",
    "id",
    "*",
    "t",
    "..",
    "../../../etc/passwd",
    "/etc/passwd",
    "s3://other/t",
    "file:///etc",
    "%2e%2e",
    "catalog.namespace.table",
    "\u202e",
    "\ud800",
    "\0",
    "x" * 5000,
    "🦆",
    "unicode ÄÖ",
)
#: Sound texts by their kind.
SOUND: Mapping[str, tuple[str, ...]] = {
    "sql": (
        "SELECT id, g, x FROM t WHERE g = 1 AND id > 3 ORDER BY id LIMIT 5",
        "SELECT g, count(*), sum(s.a) FROM t GROUP BY g HAVING count(*) > 1",
        "WITH a AS (SELECT * FROM t) SELECT a.id, b.x FROM a JOIN t b ON a.id = b.id",
        "SELECT * FROM t VERSION AS OF 3 WHERE x LIKE 'a%'",
        "SELECT * FROM t TIMESTAMP AS OF '2027-01-15 08:00:00'",
        "INSERT INTO t (id, g, x) VALUES (1, 2, 'b') , (3, 4, NULL)",
        "INSERT INTO t SELECT * FROM t WHERE id < 3",
        "UPDATE t SET x = 'u' , g = g + 1 WHERE id IN (1, 2, 3)",
        "DELETE FROM t WHERE id BETWEEN 2 AND 4 OR x IS NULL",
        "MERGE INTO t USING (SELECT 1 AS id, 'm' AS x) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET x = s.x WHEN NOT MATCHED "
        "THEN INSERT (id, x) VALUES (s.id, s.x)",
        "CREATE TABLE v (a BIGINT NOT NULL, b DECIMAL(10, 2) , c STRUCT(d INTEGER[]))",
        "CREATE TABLE v AS SELECT id, x FROM t",
        "ALTER TABLE t ADD COLUMN y VARCHAR",
        "ALTER TABLE t RENAME COLUMN x TO z",
        "ALTER TABLE u RENAME TO w",
        "DROP TABLE IF EXISTS u",
        "CREATE VIEW w AS SELECT id FROM t",
        "CREATE BRANCH c AS OF VERSION 3",
        "CREATE TAG v2 RETAIN 7 DAYS",
        "MERGE BRANCH b INTO main",
        "SHOW TABLES",
        "DESCRIBE t",
        "EXPLAIN SELECT * FROM t",
        "OPTIMIZE t ZORDER BY (id)",
        "VACUUM t",
        "TRUNCATE TABLE u",
        "COMMENT ON TABLE t IS 'a table'",
        "BEGIN ; UPDATE t SET x = 'a' ; SAVEPOINT a ; ROLLBACK TO a ; COMMIT",
        "SET lakevilla.wait = 'decided'",
    ),
    "predicate": (
        "id = 3 AND x IN ('a', 'b') OR NOT g IS NULL",
        "lower(x) LIKE 'a%' AND id + 1 > 2 * g",
        "CASE WHEN id > 3 THEN x ELSE 'b' END = 'b'",
        "s.a = 1 AND CAST(id AS DOUBLE) < 1.5",
        "date_trunc('day', TIMESTAMP '2027-01-15 08:00:00') > DATE '2027-01-01'",
        "regexp_matches(x, '^a[0-9]+$')",
    ),
    "expression": ("g + 1", "upper(x) || 'z'", "CASE WHEN g > 1 THEN 1 ELSE 0 END", "s.a * 2"),
    "name": ("t", "u", "a.b", "sales/eu/orders", "memory://lake/t", "s3://bucket/key", "/tmp/t"),
    "time": ("2027-01-15 08:00:00", "2027-01-15T08:00:00Z", "2027-01-15", "08:00"),
}
#: How much more often a kind of text is drawn: a name is mostly refused at once.
_WEIGHTS = {"sql": 8, "predicate": 4, "expression": 4}
_ROW = [{"id": 9, "g": 0, "x": "new", "s": {"a": 1, "l": [1]}}]
#: The calls by name, each with the kind of text that it takes.
CALLS: dict[str, tuple[str, Callable[[lv.Lake, str], Any]]] = {
    "sql": ("sql", lambda lake, text: lake.sql(text)),
    "snapshot.sql": ("sql", lambda lake, text: lake.snapshot().sql(text)),
    "session": ("sql", lambda lake, text: _in_session(lake, text)),
    "read where": ("predicate", lambda lake, text: lake.read("t", where=text)),
    "count where": ("predicate", lambda lake, text: lake.table("t").count(where=text)),
    "delete where": ("predicate", lambda lake, text: _run(lake, "delete", where=text)),
    "update": ("expression", lambda lake, text: _run(lake, "update", {"g": text}, where="id = 5")),
    "read": ("name", lambda lake, text: lake.read(text)),
    "create": ("name", lambda lake, text: lake.create_table(text, _ROW)),
    "register": ("name", lambda lake, text: lake.register(text)),
    "rename": ("name", lambda lake, text: lake.rename_table("t", text)),
    "tag": ("name", lambda lake, text: lake.tag(text)),
    "branch": ("name", lambda lake, text: lake.branch(text)),
    "on": ("name", lambda lake, text: lake.on(text).read("t")),
    "columns": ("name", lambda lake, text: lake.read("t", columns=[text])),
    "partition": ("name", lambda lake, text: lake.create_table("v", _ROW, partition_by=[text])),
    "column": ("name", lambda lake, text: lake.create_table("v", [{text: 1}])),
    "at a time": ("time", lambda lake, text: lake.snapshot(timestamp=text)),
    "history": ("time", lambda lake, text: lake.changes(text)),
}


def _in_session(lake: lv.Lake, text: str) -> None:
    with lake.session() as session:
        session.sql(text)


def _run(lake: lv.Lake, verb: str, *given: Any, **options: Any) -> None:
    lake.run(lambda txn: getattr(txn, verb)("t", *given, **options))

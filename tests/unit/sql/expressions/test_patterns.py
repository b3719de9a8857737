"""Patterns and formats: those that all engines read alike are accepted, and others refused by
name.
"""

from __future__ import annotations

import re

import duckdb
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lakevilla.engines.duckdb.sqltext import quote_text
from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.functions.declaring import WrongTypes
from lakevilla.sql.expressions.functions.patterns import pattern, replacement
from lakevilla.sql.expressions.functions.temporal import format_of, read_format
from lakevilla.sql.expressions.functions.text import TEXT_MEANINGS
from tests.support.search import how_many


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("(?i)a", "(?, a flag"),
        ("(?=a)", "(?, a flag"),
        ("(?<name>a)", "(?, a flag"),
        (r"(a)\1", r"\1"),
        (r"\bword", r"\b"),
        (r"\p{L}", r"\p"),
        (r"\Aa", r"\A"),
        (r"\Qa.b\E", r"\Q"),
        ("a*+", "+ after *"),
        ("a**", "* after *"),
        ("a{2}{3}", "{ after {2}"),
        ("(a*)*", "* after what may be empty"),
        ("^*", "* after what may be empty"),
        ("a{3,2}", "no count"),
        ("a{,2}", "no count"),
        ("{", "after nothing"),
        ("*a", "after nothing"),
        ("a$b", "$ before its end"),
        ("(a$)", "$ before its end"),
        ("\\n$", "$ beside"),
        (r"[\n]x$", "$ beside"),
        (r"a$|b\z", "$ beside"),
        ("[[:alpha:]]", "class"),
        ("[a&&b]", "&&"),
        ("[]a]", "class"),
        ("[a", "class"),
        ("[]", "class"),
        (r"[\D]", r"\D"),
        (r"[\w-z]", "- after a class"),
        ("[a-c-e]", "- in the middle"),
        (r"[a-\d]", "ends in a class"),
        ("[z-a]", "empty range"),
        ("(a", "( without )"),
        ("a)", ") without a ("),
        ("a\\", "at its end"),
        ("\\é", "\\é"),
        ("(a{100}){100}", "1000 parts"),
        ("a" * 1001, "1000 characters"),
        ("a\0", "NUL"),
        ("(" * 60 + "a" + ")" * 60, "50 groups"),
    ],
)
def test_patterns_that_engines_read_differently_are_refused(text: str, named: str) -> None:
    with pytest.raises(WrongTypes) as caught:
        pattern(text)
    assert named in str(caught.value)


@pytest.mark.parametrize("text", ["$", "$2", "$0", "$12", r"\1", "a$b"])
def test_a_replacement_that_names_a_missing_group_is_refused(text: str) -> None:
    with pytest.raises(WrongTypes):
        replacement(text, 1)


def test_a_dollar_matches_before_a_final_line_break_and_backslash_z_does_not() -> None:
    like = TEXT_MEANINGS["regexp_like"]
    for ending in ("", "\n", "\r\n", "\r", "\x85", "\u2028"):
        assert like(f"ab{ending}", "^ab$")
        assert like(f"ab{ending}", r"^ab\z") is (ending == "")
    assert not any([like("ab\n\n", "b$"), like("ab\nc", "b$"), like("\r\n", "^[^a]$")])


@pytest.mark.timeout(20)
@pytest.mark.parametrize("regexp", ["^(a+)+$", r"^(a|aa)+\z", "^(?:a|ba*|ca*)+d", "(x+x+)+y"])
def test_no_accepted_pattern_takes_exponential_time(regexp: str) -> None:
    text = "a" * 20_000 + "!" if "x" not in regexp else "x" * 20_000
    assert TEXT_MEANINGS["regexp_like"](text, regexp) is False
    without = regexp.replace("$", "")
    assert TEXT_MEANINGS["regexp_extract"]("b" * 20_000, without, 0) == ""
    if not pattern(without).empty:
        assert TEXT_MEANINGS["regexp_replace"](text, without + "!!", "") == text


def test_regexp_extract_returns_each_group_of_a_match() -> None:
    extract = TEXT_MEANINGS["regexp_extract"]
    regexp = r"(\()([(a]+)(?:b)(c(d)?)\)"
    text = "x(a(bcd) (abc)"
    assert [extract(text, regexp, n) for n in range(5)] == ["(a(bcd)", "(", "a(", "cd", "d"]
    assert extract("(abc)", regexp, 4) == ""
    assert TEXT_MEANINGS["regexp_replace"](text, "([ad])([()])", "$2$1") == "x((abc)d (abc)"


_ATOMS = st.sampled_from(
    ["a", "b", "é", "😀", ".", r"\d", r"\w", r"\s", r"\S", "[ab]", "[^a]", r"[\s,-]", "[a-cé]",
     r"\.", r"\\", "^", r"\z", ",", "1", "\n", r"\W", "x|", "|"]
)  # fmt: skip
_COUNTED = st.tuples(_ATOMS, st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "*?", "+?"]))
_PIECES = st.lists(_COUNTED.map("".join), min_size=1, max_size=4).map("".join)
_GROUPED = st.tuples(
    _PIECES, st.sampled_from(["({})", "(?:{})", "({})+", "({})?", "{}"]), _PIECES
).map(lambda parts: parts[0] + parts[1].format(parts[2]))
_PATTERNS = st.one_of(_PIECES, _GROUPED, _GROUPED.map(lambda text: text + "$"))
_TEXTS = st.text(alphabet="aab,1é😀 \n\r\u2028x.\\", max_size=7)


def _of_python(match: re.Match[str]) -> str:
    return r"\Z" if match[1] == "z" else match[0]


@settings(
    max_examples=how_many(66, whole=400),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(text=_PATTERNS, subjects=st.lists(_TEXTS, min_size=1, max_size=5))
def test_accepted_patterns_mean_the_same_in_duckdb(
    connection: duckdb.DuckDBPyConnection, text: str, subjects: list[str]
) -> None:
    try:
        found = pattern(text)
    except WrongTypes:
        assume(False)
        raise
    regexp = quote_text(found.text)
    for subject in subjects:
        value, group = quote_text(subject), min(1, found.groups)
        wanted = (found.is_in(subject), found.first(subject, group))
        by_python = re.compile(re.sub(r"\\(.)", _of_python, found.text, flags=re.DOTALL))
        match = by_python.search(subject)
        assert wanted == (match is not None, "" if match is None else match[group] or "")
        asked = f"regexp_matches({value}, {regexp}), regexp_extract({value}, {regexp}, {group})"
        assert connection.execute(f"select {asked}").fetchone() == wanted, (text, subject)
        if not found.empty:
            replaced = f"select regexp_replace({value}, {regexp}, '<>', 'g')"
            assert connection.execute(replaced).fetchone() == (found.replaced(subject, "<>"),)
        if not (found.empty or found.groups or found.anchored):
            parts = f"select string_split_regex({value}, {regexp})"
            assert connection.execute(parts).fetchone() == (found.split(subject),)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("yyyy-MM-DD", "DD"),
        ("%Y-%m", "%"),
        ("yy", "yy"),
        ("d.M.yyyy", "d"),
        ("yyyy-MM-ddTHH:mm", "T"),
        ("yyyy yyyy", "once"),
        ("", "yyyy"),
        ("EEE", "EEE"),
        ("yyyy-MM-dd'", "'"),
    ],
)
def test_letters_of_formats_on_which_engines_differ_are_refused(text: str, named: str) -> None:
    with pytest.raises(WrongTypes) as caught:
        format_of(text)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("text", "last"),
    [("MM-dd", "fraction"), ("yyyy-dd", "fraction"), ("yyyy-MM-dd mm", "fraction"),
     ("yyyy-MM-dd HH:mm.SSS", "fraction"), ("yyyy-MM-dd HH", "day"), ("HH:mm", "fraction")],
)  # fmt: skip
def test_a_parse_format_with_gaps_or_with_fields_that_the_type_lacks_is_refused(
    text: str, last: str
) -> None:
    with pytest.raises(WrongTypes):
        read_format(text, last)


def test_refused_functions_and_patterns_are_reported_with_advice() -> None:
    from lakevilla.sql.expressions.bind import bind
    from lakevilla.sql.expressions.parse import parse_expression
    from tests.support.trees import SCHEMA

    for sql, named in {
        "regexp_like(s, t)": "a constant string as the pattern",
        r"regexp_replace(s, 'a$', '')": r"\z",
        "regexp_replace(s, 'a*', '')": "the empty text",
        "regexp_extract(s, '(a)', 2)": "one of the 1 groups",
        "regexp_extract(s, '(a)')": "regexp_extract(a, 'pattern', group)",
        "split(s, '.')": "'[.]'",
        "split(s, '|')": "'[|]'",
        "lpad(s, 9, '')": "not empty",
        "lpad(s, l)": "constant integer",
        "split_part(s, ',', 0)": "1 is the first",
        "sha2(s, 512)": "256 bits",
        "to_date(s, t)": "constant format",
        "date_format(d, 'HH')": "a timestamp",
        "to_json(st.n)": "a struct or an array",
        "get_json_object(s, 'a')": "'$.a.b[0]'",
        "get_json_object(s, '$..a')": "a path",
        "array_contains(s, 1)": "an array",
        "size(s)": "an array or a map",
        "log(x)": "ln or log10",
        "trunc(x)": "date_trunc",
        "rand()": "another value each time",
        "hash(s)": "md5",
        "strftime(d, '%Y')": "date_format",
        "unix_timestamp(d)": "timestamp",
        "sum(l)": "many rows",
        "regexp_replce(s, 'a', 'b')": "did you mean regexp_replace",
        "if(bo, 1)": "if(c, a, b)",
        "extract(dow from d)": "dow",
    }.items():
        with pytest.raises(InvalidOperation) as caught:
            bind(parse_expression(sql), SCHEMA, predicate=False)
        assert named in str(caught.value), (sql, str(caught.value))

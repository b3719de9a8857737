"""Whatever text a caller gives: it is run, or refused by LakeVilla, soon and in little memory."""

from __future__ import annotations

from typing import Any

import pytest

from lakevilla.api.lake import Lake
from lakevilla_testing.fuzzing import texts
from lakevilla_testing.fuzzing.choices import drawn
from tests.support.search import first_seed, how_many


def test_a_drawn_text_is_run_or_refused_by_an_error_of_the_library() -> None:
    for seed in range(first_seed(), first_seed() + how_many(40, whole=1_000, soak=200_000)):
        given = texts.input_of(drawn(seed))
        assert texts.judge(given) == [], f"seed {seed}: {given}"


def test_the_search_finds_a_verb_that_raises_a_raw_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(lake: Lake[Any], text: str) -> object:
        return {}[text]

    monkeypatch.setattr(Lake, "register", careless)
    (fault,) = texts.judge(texts.Given("register", "x"))
    assert fault.what == "a raw KeyError"

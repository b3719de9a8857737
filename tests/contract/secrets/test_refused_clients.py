"""What is shown to a client that a store refuses holds no secret, whatever the store says."""

from __future__ import annotations

import pytest

from lakevilla.store.backends import failures
from tests.support.planted_secrets import MARK, Shown, shown_to_a_refused_client
from tests.support.search import first_seed, how_many


@pytest.mark.parametrize("number", range(how_many(6, whole=60, soak=3_000)))
def test_no_secret_is_shown_to_a_client_that_a_store_refuses(number: int) -> None:
    seed = first_seed() * 10_000 + number
    shown = shown_to_a_refused_client(seed)
    assert len(shown.texts) > 4
    assert shown.leaks() == [], f"seed {seed}"


def test_the_search_finds_a_library_that_repeats_what_a_store_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failures, "_hint", lambda status, names, text="": text)
    assert any(shown_to_a_refused_client(seed).leaks() for seed in range(3))


def test_the_search_reads_errors_their_causes_and_the_variables_of_frames() -> None:
    shown = Shown()
    try:
        try:
            raise KeyError(MARK)
        except KeyError as error:
            raise ValueError("no") from error
    except ValueError as error:
        shown.add_error(error)
    assert [one.partition(":")[0] for one in shown.leaks()] == ["error KeyError"]

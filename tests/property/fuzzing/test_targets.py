"""The inputs of the guided search: sound ones are judged well, and so are those that it changes."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("starlette", reason="the gateway's inputs need the extra `gateway`")

from lakevilla.api.lake import Lake
from lakevilla.serve.catalog import Catalog
from lakevilla.store import codec
from lakevilla_testing.fuzzing.choices import Choices, drawn
from lakevilla_testing.fuzzing.target import Target
from lakevilla_testing.fuzzing.targets import targets
from tests.support.search import first_seed, how_many

#: These run verbs and statements: a few inputs a second, and not thousands.
SLOW = (
    *("lake ", "text ", "gateway", "tools", "parameters", "dbapi", "command", "query"),
    *("parser checkpoint", "parser vectors", "parser Puffin"),
)


def _inputs(target: Target, seed: int) -> tuple[bytes, bytes]:
    """Return a sound input, and the input that three changes make of it."""
    sound = changed = target.seeds[seed % len(target.seeds)]
    for number in range(3):
        changed = target.change(changed, Choices(drawn(10 * seed + number)))
    return sound, changed


def test_an_input_of_a_quick_target_is_judged_well_after_any_changes() -> None:
    quick = [name for name in targets() if not name.startswith(SLOW)]
    for seed in range(first_seed(), first_seed() + how_many(1, whole=100, soak=5_000)):
        for name in quick:
            for body in _inputs(targets()[name], seed):
                assert targets()[name].judge(body) == [], f"{name}, seed {seed}"


def test_an_input_of_a_slow_target_is_judged_well_after_any_changes() -> None:
    slow = itertools.cycle([name for name in targets() if name.startswith(SLOW)])
    for seed in range(first_seed(), first_seed() + how_many(6, whole=300, soak=20_000)):
        name = next(slow)
        for body in _inputs(targets()[name], seed):
            assert targets()[name].judge(body) == [], f"{name}, seed {seed}"


def test_a_target_finds_a_parser_that_raises_a_raw_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_corrupt", lambda key, kind, error: ValueError(str(error)))
    (fault,) = targets()["parser HEAD"].judge(b"[")
    assert fault.what == "a raw ValueError"


def test_a_request_to_the_gateway_that_raises_a_raw_error_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(catalog: Catalog, *_: object) -> object:
        return {}["namespace"]

    monkeypatch.setattr(Catalog, "namespaces", careless)
    (fault,) = targets()["gateway"].judge(b'{"method": "GET", "path": "/v1/namespaces"}')
    assert fault.what == "a raw KeyError"


def test_a_command_that_raises_a_raw_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lake, "refs", lambda lake: {}["refs"])
    (fault,) = targets()["command line"].judge(b'["refs", "L"]')
    assert fault.what == "a raw KeyError"

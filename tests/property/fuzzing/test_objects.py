"""Whatever a store returns: it is read whole, or refused by name, soon and in little memory."""

from __future__ import annotations

import itertools

import pytest

import lakevilla as lv
from lakevilla.formats.iceberg.manifests import avro
from lakevilla_testing.fuzzing import objects, parsers
from lakevilla_testing.fuzzing.avro import with_count
from lakevilla_testing.fuzzing.choices import drawn
from lakevilla_testing.fuzzing.lakes import KINDS, lake_of, opened, saved_in, store_of
from lakevilla_testing.fuzzing.verbs import rows, verbs_of
from tests.support.search import first_seed, how_many


def test_the_verbs_end_well_on_a_sound_lake() -> None:
    """What they raise on a damaged lake is due to the damage."""
    verbs = list(verbs_of().values())[:: how_many(3, whole=1)]
    for verb, kind in zip(verbs, itertools.cycle(KINDS), strict=False):
        with opened(store_of(lake_of(kind))) as lake:
            verb(lake, saved_in(kind))


def test_a_parser_reads_a_damaged_object_whole_or_refuses_it_by_name() -> None:
    for seed in range(first_seed(), first_seed() + how_many(600, whole=6_000, soak=1_000_000)):
        given = parsers.input_of(drawn(seed))
        assert parsers.judge(given) == [], f"seed {seed}: {given}"


def test_the_verbs_of_a_lake_with_a_damaged_object_end_well_or_refuse_it_by_name() -> None:
    for seed in range(first_seed(), first_seed() + how_many(8, whole=60, soak=50_000)):
        given = objects.input_of(drawn(seed))
        assert objects.judge(given) == [], f"seed {seed}: {given}"


@pytest.mark.parametrize("body", [b"", b"PAR1", "as another"])
def test_a_kept_state_that_has_its_hash_and_is_none_is_refused(body: bytes | str) -> None:
    sound = lake_of("delta")
    (key,) = [key for key in sound if "/kept/" in key]
    other = next(body for key, body in sound.items() if key.startswith("t/g=0/"))
    changed = {**sound, key: body if isinstance(body, bytes) else other}
    with (
        opened(store_of(objects.renamed(changed, sound))) as lake,
        pytest.raises(lv.LakeVillaError, match=r"/kept/.* keeps no state of table t"),
    ):
        rows(lake.on("b"))


def test_a_parser_that_reads_less_than_the_bytes_say_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The search itself can fail: here, a block's records need not take all of its bytes."""
    monkeypatch.setattr(avro.BoundedDecoder, "check_end", lambda decoder: None)
    name = "manifest list (iceberg)"
    one = parsers.parsers()[name]
    cut = with_count(one.body, 1)
    assert cut is not None
    (fault,) = parsers.judge(parsers.Parsed(name, "count changed", cut))
    assert fault.what == "less than the bytes say"

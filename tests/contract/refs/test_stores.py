"""Tags and rebases on each kind of store, with commits of a dead client and tables outside the
root.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from tests.support.places import Place, decide_and_leave
from tests.support.refs.shop import clean_up
from tests.support.tables import accounts, values


def balances(lake: lv.Lake) -> list[int]:
    return values(lake.read("bank"), "balance")


def test_a_tag_keeps_its_state_on_each_store(place: Place) -> None:
    with place.connect() as lake, place.connect() as other:
        lake.create_table("bank", accounts(3))
        lake.tag("opening")
        for number in range(3):
            other.run(lambda txn: txn.update("bank", {"balance": "balance + 1"}, where="true"))
            other.tag(f"day-{number}", at=None if number else "opening")
            clean_up(lake)
        assert balances(lake) == [103] * 3
        found = {ref.name: balances(other.on(ref.name)) for ref in lake.refs()}
        assert found == {
            "opening": [100] * 3,
            "day-0": [100] * 3,
            "day-1": [102] * 3,
            "day-2": [103] * 3,
        }
        for name in ("opening", "day-0", "day-1"):
            lake.delete_ref(name)
        clean_up(other)
        assert balances(lake.on("day-2")) == [103] * 3
        with pytest.raises(lv.VersionNotFound):
            other.tag("gone", at=1)


def test_a_commit_decided_by_a_dead_client_is_in_the_tag_before_it_is_published(
    quick_place: Place,
) -> None:
    with quick_place.connect() as lake:
        lake.create_table("bank", accounts(3))
        lake.create_table("other", accounts(1))
    decide_and_leave(quick_place)
    with quick_place.connect() as lake:
        lake.tag("closing")
        then = lake.on("closing")
        expected = balances(lake)
        assert expected == [100, 100, 105]
        assert balances(then) == expected
        lake.recover()
        lake.run(lambda txn: txn.update("bank", {"balance": 0}, where="true"))
        clean_up(lake)
        assert balances(then) == expected
    with quick_place.connect() as new:
        assert balances(new.on("closing")) == expected
        assert new.doctor(files=True).ok
        new.delete_ref("closing")
        clean_up(new)
        assert balances(new) == [0] * 3


def test_a_tag_keeps_a_table_outside_the_root_too(local_place: Place, tmp_path: Path) -> None:
    outside = Place(str(tmp_path / "outside"))
    outside.write("bank", accounts(3))
    with local_place.connect() as lake:
        lake.register("far/bank", outside.uri("bank"))
        lake.tag("closing")
        lake.run(lambda txn: txn.delete("far/bank", where="true"))
        clean_up(lake)
        assert lake.on("closing").read("far/bank").num_rows == 3
        lake.drop_table("far/bank")
        clean_up(lake)
        lake.register("near", outside.uri("bank"))
        clean_up(lake)
        assert lake.on("closing").read("far/bank").num_rows == 3
        assert list(lake.on("closing")) == ["far/bank"]


def test_a_branch_can_be_rebased_on_each_store(place: Place) -> None:
    with place.connect() as lake, place.connect() as other:
        lake.create_table("bank", accounts(3))
        lake.branch("etl")
        etl = other.on("etl")
        for number in range(2):
            etl.run(lambda txn: txn.append("bank", accounts(1)))
            lake.run(lambda txn: txn.append("bank", accounts(1)))
            ref = lake.rebase("etl")
            assert ref.version == other.refs()[0].version
            clean_up(other)
            assert len(balances(etl)) == 3 + 2 * (number + 1)
        other.merge("etl", delete=True)
        clean_up(lake)
        assert balances(lake) == [100] * 7

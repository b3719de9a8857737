"""HEAD is set back on purpose where it is a log."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.global_log.repo import load_head
from lakevilla_testing.damage.scene import OnlyCreates
from tests.support.backups import fill, shown
from tests.support.inside import inside
from tests.support.places import Place


def test_a_lake_whose_head_is_a_log_has_no_fault_after_its_head_was_reset(
    shared_place: Place,
) -> None:
    with shared_place.connect() as lake:
        inside(lake).store = OnlyCreates(inside(lake).store)
        fill(lake)
        expected = shown(lake)
        with pytest.raises(
            lv.VersionNotFound, match=r"there is no HEAD 999 in .*: choose one from"
        ):
            lake.recover(reset_head=999)
        held = inside(lake).run(load_head())
        assert held is not None
        assert held.head.as_log
        newest = held.head.replacement
        for work in ({"reset_head": newest}, {"confirm_head": True}, {}):
            report = lake.recover(**work)
            assert [one.message for one in report.findings if one.severity == "error"] == []
        assert shown(lake) == expected
        lake.run(lambda txn: txn.append("stock", [{"sku": "egg", "qty": 1}]))
        lake.gc()
        assert lake.doctor().ok

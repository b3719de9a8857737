"""Invalid settings are refused with their name."""

from __future__ import annotations

from typing import Any

import pytest

import lakevilla as lv

#: Python can't print this number, and no float can represent it.
HUGE = 10**5000


@pytest.mark.parametrize(
    "settings",
    [
        {"lease_seconds": 0},
        {"max_redos": -1},
        {"max_redos": 1.5},
        {"lease_seconds": "30"},
        {"lease_seconds": float("nan")},
        {"lease_seconds": 3601},
        {"request_timeout_seconds": float("inf")},
        {"wait_timeout_seconds": HUGE},
        {"max_redos": HUGE},
        {"durable_files": 0},
        {"durable_files": "no"},
        {"stores": ["s3://archive"]},
        {"stores": "s3://archive"},
        {"stores": ("archive",)},
    ],
    ids=[str(number) for number in range(14)],
)
def test_an_invalid_setting_is_refused_with_its_name(settings: dict[str, Any]) -> None:
    with pytest.raises(lv.InvalidOperation, match=f"settings: {next(iter(settings))} must be"):
        lv.Settings(**settings)

from pathlib import Path

import pytest

from tests.support.delta_by_hand import Tables


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)

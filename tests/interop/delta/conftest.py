from pathlib import Path

import pytest

from tests.fixtures.delta import Tables


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)

"""The definition of a view, as another client may have left it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lakevilla as lv
from lakevilla.formats.delta.metadata.layout import DeltaDefinition
from lakevilla.formats.views import view_of
from tests.support.delta_by_hand import metadata, protocol

DEEP = "[" * 50_000 + "]" * 50_000


@pytest.mark.parametrize(
    "text", ["", "7", '{"columns": []}', '{"sql": 5}', f'{{"sql": "x", "a": {DEEP}}}']
)
def test_a_damaged_definition_of_a_view_is_refused_by_the_name_of_the_view(text: str) -> None:
    definition = DeltaDefinition("t", "t", metadata()["metaData"], protocol()["protocol"])
    with pytest.raises(lv.CorruptObject, match="view t has a definition that can't be read"):
        view_of(replace(definition.layout, view=text))

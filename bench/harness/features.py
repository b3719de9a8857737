"""Choices of features, by the names that parameters and figures have for them."""

from __future__ import annotations

import lakevilla as lv

_R, _CT, _I = lv.Feature.R, lv.Feature.CT, lv.Feature.I
#: In the order of the paper's Figure 11.
FEATURES = {
    "NONE": lv.Feature.NONE,
    "R": _R,
    "CT": _CT,
    "I": _I,
    "R|CT": _R | _CT,
    "CT|I": _CT | _I,
    "R|I": _R | _I,
    "R|CT|I": _R | _CT | _I,
}


def features(*names: str) -> dict[str, lv.Feature]:
    """Some of them, in this order."""
    return {name: FEATURES[name] for name in names}

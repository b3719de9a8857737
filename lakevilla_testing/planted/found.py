"""What a layer of the campaign took to find a slip: measured once, from the layer's seed 0 on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """The seed at which a layer fails with a planted bug, and the seconds of processor until then.

    ``python -m lakevilla_testing.planted BUG -m tests.prove.layers.LAYER --seed SEED --seconds 1``
    shows the failure again.
    """

    layer: str
    seed: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.layer}, seed {self.seed}, {self.seconds:.0f} s"


#: By the name of the slip. The layers' seeds stand for other inputs once what they draw changes.
FOUND: dict[str, Found] = {}

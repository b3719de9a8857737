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
FOUND: dict[str, Found] = {
    "set_back_by_one_unseen": Found("lives", 0, 2.0),
    "undone_is_resumed": Found("lives", 2, 10.4),
    "leaf_before_the_prefix": Found("lives", 2, 9.9),
    "clone_of_the_next_version": Found("lives", 5, 25.5),
    "rules_of_members_unchecked": Found("histories", 11, 6.4),
    "metadata_of_members_lost": Found("histories", 11, 7.0),
    "applications_of_members_lost": Found("histories", 11, 6.6),
}

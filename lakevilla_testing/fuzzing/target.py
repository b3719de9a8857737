"""A call for which a search that is guided by coverage makes inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakevilla_testing.fuzzing.choices import Choices
from lakevilla_testing.fuzzing.faults import Fault


@dataclass(frozen=True)
class Target:
    """A call for which inputs are made.

    Attributes
    ----------
    seeds : sequence of bytes
        Sound inputs.
    judge : callable
        Makes the call with an input; returns what it should not have done.
    change : callable
        Returns an input that is a little different, as the choices say.
    """

    seeds: Sequence[bytes]
    judge: Callable[[bytes], list[Fault]]
    change: Callable[[bytes, Choices], bytes]

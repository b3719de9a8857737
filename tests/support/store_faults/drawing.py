"""Histories drawn by a seed: what the client does, which fault strikes, where, and for how long."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.fixtures.s3 import S3Server
from tests.support import small_disk
from tests.support.store_faults.disk import DISK_FAULTS, DiskPlan
from tests.support.store_faults.faults import SOUND, StaleLists
from tests.support.store_faults.histories import Format, History, Place, run
from tests.support.store_faults.programs import STEPS, Step
from tests.support.store_faults.proxy import FaultyProxy, Plan

#: A fault that lasts as long as the history does.
TO_THE_END = 1_000_000


@dataclass
class Drawn:
    """A history before it runs.

    Attributes
    ----------
    fired : int
        The number of requests, or of system calls, that the fault has struck.
    """

    seed: int
    format: Format
    steps: tuple[Step, ...]
    is_warm: bool
    fault: str
    first: int
    length: int
    fired: int = 0
    history: History = field(default_factory=History)

    def __str__(self) -> str:
        for_long = "to the end" if self.length == TO_THE_END else f"for {self.length}"
        work = ", ".join(step.name for step in self.steps)
        return (
            f"seed {self.seed}, {self.format}, {'warm' if self.is_warm else 'cold'}: {work}; "
            f"{self.fault} from {self.first} on {for_long}, {self.fired} fired\n{self.history}"
        )


def _drawn(seed: int, faults: tuple[str, ...], longest: int) -> Drawn:
    draw = random.Random(seed)
    steps = tuple(draw.choices(STEPS, k=draw.choice((1, 2, 2, 3))))
    formats: tuple[Format, ...] = ("delta", "iceberg")
    return Drawn(
        seed,
        draw.choice(formats),
        steps,
        draw.random() < 0.5,
        draw.choice(faults),
        # Most requests of a kind are among the first few.
        draw.randrange(draw.choice((2, 8, longest))),
        draw.choice((1, 1, 2, 3, 8, TO_THE_END)),
    )


# -------------------- a server


_BY_NAME = {fault.name: fault for fault in SOUND}


def on_server(seed: int, server: S3Server, proxy: FaultyProxy) -> Drawn:
    """Run a drawn history whose requests the proxy breaks."""
    drawn = _drawn(seed, (*_BY_NAME, StaleLists.name), 25)
    stale = StaleLists()
    fault = _BY_NAME.get(drawn.fault, stale)
    plan = Plan(fault, drawn.first, drawn.length)
    proxy.watchers = [stale.watch] if fault is stale else []
    place = Place(server.new_root(), drawn.format, server.storage_options)
    options = server.at(proxy.endpoint).storage_options
    try:
        drawn.history = run(
            place, drawn.steps, lambda: proxy.breaking(plan), options, is_warm=drawn.is_warm
        )
    finally:
        proxy.watchers = []
    drawn.fired = plan.fired
    return drawn


# -------------------- a directory


def on_disk(seed: int, directory: Path) -> Drawn:
    """Run a drawn history whose system calls fail, below a new directory."""
    by_name = {fault.name: fault for fault in DISK_FAULTS}
    drawn = _drawn(seed, tuple(by_name), 80)
    root = f"{tempfile.mkdtemp(dir=directory)}/lake"
    plan = DiskPlan(by_name[drawn.fault], root, drawn.first, drawn.length)
    place = Place(root, drawn.format)
    drawn.history = run(place, drawn.steps, plan.breaking, is_warm=drawn.is_warm)
    drawn.fired = plan.fired
    return drawn


# -------------------- a full disk


def on_small_disk(seed: int, directory: Path) -> Drawn:
    """Run a drawn history on a disk that is really full, or has a few kilobytes left."""
    drawn = _drawn(seed, ("full disk",), 60)
    drawn.length = TO_THE_END
    root = Path(tempfile.mkdtemp(dir=directory))
    with small_disk.mounted(root / "disk", 20_000) as disk:

        @contextmanager
        def full() -> Iterator[None]:
            disk.leave(drawn.first * 4096)
            yield
            drawn.fired += disk.free < 4096 * drawn.first
            disk.clear()

        place = Place(str(disk.path / "lake"), drawn.format)
        drawn.history = run(place, drawn.steps, full, is_warm=drawn.is_warm)
    return drawn

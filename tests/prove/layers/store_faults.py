"""A store, a network and a disk that break while one client works, at any request or call."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from tests.fixtures import s3
from tests.fixtures.servers import S3_SERVERS
from tests.prove.layer_main import main
from tests.prove.turn import Turn
from tests.support import small_disk
from tests.support.store_faults.drawing import Drawn, on_disk, on_server, on_small_disk
from tests.support.store_faults.proxy import FaultyProxy

_REPEATS = "python -m tests.prove.layers.store_faults --seed {seed} --seconds 1"


def run(turn: Turn) -> None:
    """Run histories on a disk, on a full one, and on a server, in turn."""
    # The faults are meant: what the library logs about them says nothing here.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with ExitStack() as ends:
        directory = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        (directory / "server").mkdir()
        server = ends.enter_context(s3.servers()[S3_SERVERS[0]](directory / "server"))
        proxy = ends.enter_context(closing(FaultyProxy(server.endpoint)))
        disk = ("histories on a disk", lambda seed: on_disk(seed, directory))
        small = ("histories on a full disk", lambda seed: on_small_disk(seed, directory))
        kinds: list[tuple[str, Callable[[int], Drawn]]] = [
            # A history on a disk costs a tenth of one on a server.
            *[disk] * 6,
            small if small_disk.refusal() is None else disk,
            ("histories on a server", lambda seed: on_server(seed, server, proxy)),
        ]
        while turn.goes_on():
            seed = turn.next_seed()
            # By the seed, so that a seed alone repeats its history.
            what, drawn_by = kinds[seed % len(kinds)]
            drawn = drawn_by(seed)
            turn.count(what)
            turn.count("steps", len(drawn.history.done))
            if drawn.fired:
                turn.fired(drawn.fault, drawn.fired)
            if drawn.history.wrong:
                turn.failed(seed, _REPEATS.format(seed=seed), str(drawn))


if __name__ == "__main__":
    main(run)

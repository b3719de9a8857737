"""Inputs that coverage guides: a target for each parser, and for lakes, texts and requests."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.prove.layer_main import main
from tests.prove.turn import PLANTED_BUG, Turn

#: Corpora and inputs with faults; the next turn goes on with them.
DIRECTORY = Path(".cache/fuzz")
#: Where `make atheris` installs what instruments the library.
ATHERIS = Path(f".cache/atheris-{sys.version_info.major}.{sys.version_info.minor}")
#: How long one target is searched at a time, and how long an input may take to be tried again.
_EACH_SECONDS, _LONGEST = 20, 300.0


def run(turn: Turn) -> None:
    if not ATHERIS.exists() and find_spec("atheris") is None:
        turn.leave_out("atheris is missing: `make atheris`, with a Python that it has a wheel for")
        return
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    paths = [str(ATHERIS), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    log = DIRECTORY / "log"
    while turn.goes_on():
        seed = turn.next_seed()
        seconds = max(1, round(min(_EACH_SECONDS, turn.seconds_left)))
        command = ["-m", "lakevilla_testing.fuzzing.guided", "--first", str(seed)]
        command += ["--seconds", str(round(turn.seconds_left)), "--each", str(seconds)]
        with (
            log.open("w") as said,
            subprocess.Popen(
                [sys.executable, *command], env=environment, stdout=subprocess.PIPE, stderr=said
            ) as search,
        ):
            assert search.stdout is not None
            for number, line in enumerate(search.stdout):
                tell(turn, seed if number == 0 else turn.next_seed(), json.loads(line))
                if not turn.goes_on():
                    search.terminate()
                    return
        if search.returncode:
            turn.failed(seed, shlex.join(["python", *command]), log.read_text()[-4000:])


def tell(turn: Turn, seed: int, found: dict[str, Any]) -> None:
    """Tell the turn of one run of a target, after its faults were tried again."""
    target = found["target"]
    turn.count("inputs", found["inputs"])
    turn.count(f"inputs of {target}", found["inputs"])
    turn.reached(f"edges by {target}", found["edges"])
    turn.reached(f"kept inputs of {target}", found["kept"])
    for path, what in found["faults"].items():
        command = f"python -m lakevilla_testing.fuzzing target {shlex.quote(target)} {path}"
        if Path(path).name == "said":
            turn.failed(seed, f"less {path}", what)  # a run that said what was wrong, and no input
        elif said := _shown_again(command):
            turn.failed(seed, command, f"{what}\n{said}")
        elif what.startswith("a raw"):
            turn.failed(seed, command, f"{what}\nThe command does not show it: it needs a past.")
        else:
            turn.count("faults that instruments alone have shown")


def _shown_again(command: str) -> str:
    """Return what a command shows without instruments; "" if the input is judged well."""
    bug = os.environ.get(PLANTED_BUG)
    planted = ["-m", "lakevilla_testing.planted", bug] if bug else []
    try:
        again = subprocess.run(
            [sys.executable, *planted, *shlex.split(command)[1:]],
            capture_output=True,
            text=True,
            timeout=_LONGEST,
        )
    except subprocess.TimeoutExpired:
        return f"the process did not end within {_LONGEST:.0f} seconds"
    return again.stdout + again.stderr if again.returncode else ""


if __name__ == "__main__":
    main(run)

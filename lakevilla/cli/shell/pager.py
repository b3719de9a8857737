"""Long results, shown by a program that scrolls."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping

#: What less does for us: colours as they are, long lines cut, the screen left as it was.
_LESS = "-SRX"


def pager_of(environment: Mapping[str, str]) -> list[str] | None:
    """The command of the pager: that of the user, else less; None where there is none."""
    for name in ("LAKEVILLA_PAGER", "PAGER"):
        chosen = environment.get(name)
        if chosen is not None:
            words = shlex.split(chosen)
            return words if words and words != ["cat"] and shutil.which(words[0]) else None
    found = shutil.which("less", path=environment.get("PATH"))
    return None if found is None else [found]


def page(lines: Iterable[str], command: list[str]) -> bool:
    """Hand the lines to the pager and wait until its user leaves it; whether it could begin."""
    environment = dict(os.environ)
    environment.setdefault("LESS", _LESS)
    # Ctrl-C is for the pager while it is up: less ends a search by it. A handler that does
    # nothing is not inherited, as SIG_IGN would be.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env=environment,
            text=True,
            errors="backslashreplace",
        ) as process:
            assert process.stdin is not None
            try:
                for line in lines:
                    process.stdin.write(line + "\n")
                process.stdin.close()
            except BrokenPipeError:
                pass  # its user has seen enough
            process.wait()
    except OSError:
        return False
    finally:
        signal.signal(signal.SIGINT, before)
    return True

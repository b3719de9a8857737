"""Where statements are kept from one shell to the next, and which are not."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

#: Texts that speak of such things stay in this process.
_SECRET = re.compile(
    r"passw(or)?d|secret|token|credential|access_?key|account_?key|private_?key", re.IGNORECASE
)
#: A file beyond this is cut to its newer half when a shell begins.
MOST_BYTES = 1 << 20


def history_file(environment: Mapping[str, str]) -> Path | None:
    """The file of a user, by the XDG base directories; None where there is no home."""
    chosen = environment.get("LAKEVILLA_HISTORY")
    if chosen is not None:
        return Path(chosen) if chosen else None
    state = environment.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):  # others are to be ignored, says XDG
        return Path(state) / "lakevilla" / "history"
    home = environment.get("HOME")
    return Path(home) / ".local" / "state" / "lakevilla" / "history" if home else None


def is_kept(text: str) -> bool:
    """Whether a text may be written to the file.

    One that begins with a space is not, as in other shells, nor one that may hold a secret.
    """
    return bool(text.strip()) and not text.startswith(" ") and not _SECRET.search(text)


def opened(path: Path) -> bool:
    """Make the file if it is not there, for its owner alone; whether it can be written."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
        _cut(path)
    except OSError:
        return False
    return True


def _cut(path: Path) -> None:
    """Keep the newer half of a file that has grown too long. Entries begin with a line of ``#``."""
    if path.stat().st_size <= MOST_BYTES:
        return
    content = path.read_bytes()
    begin = content.find(b"\n# ", len(content) // 2)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content[begin:] if begin >= 0 else b"")
    beside.replace(path)

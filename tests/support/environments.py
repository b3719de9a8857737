"""Python environments below ``.cache`` that have other packages than the one that runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

__all__ = ["installed", "name_of"]


def installed(directory: Path, requirements: Sequence[str]) -> Path:
    """Return the Python of an environment, and create it again if its requirements differ.

    Print the versions of what the requirements name. ``requirements`` are arguments of
    ``pip install``.
    """
    python, stamp = directory / "bin" / "python", directory / "installed"
    pinned = "\n".join([sys.version, *requirements])
    made = blake2b(pinned.encode()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != made:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(directory)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # What no test imports need not be compiled.
        subprocess.run([*pip, "--no-compile", *requirements], check=True)
        stamp.write_text(made)
    freeze = [*("-m", "pip", "freeze"), "--disable-pip-version-check", "--exclude-editable"]
    done = subprocess.run([str(python), *freeze], check=True, capture_output=True, text=True)
    names = {name_of(one).lower() for one in requirements}
    found = (one for one in done.stdout.split() if name_of(one).lower() in names)
    print(directory.name, *found, flush=True)
    return python


def name_of(requirement: str) -> str:
    """Return ``polars`` for ``polars[all]>=1.20``."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]

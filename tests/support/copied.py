"""Make lakes once and copy them for each test: to make tables takes longer than to copy them."""

from __future__ import annotations

import shutil
from pathlib import Path


def copy_lake(made: Path, root: Path) -> str:
    """Copy a lake that no client has open, as if it had been made at ``root``, which HEAD names.

    Its tables are Delta tables below its root, and their files do not contain the root.
    """
    shutil.copytree(made, root, dirs_exist_ok=True)
    head = root / "_lakevilla" / "HEAD.json"
    head.write_bytes(head.read_bytes().replace(str(made).encode(), str(root).encode()))
    return str(root)

"""Count the library's files and folders that a warm append with its commit passes through.

``python tests/passes.py`` prints both numbers, and with ``--files`` each file.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

import lakevilla as lv

LIBRARY = Path(lv.__file__).parent


def passed() -> set[Path]:
    """Return the files whose functions run in an append and its commit, on all threads."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.add(frame.f_code.co_filename)

    with tempfile.TemporaryDirectory() as root, lv.connect(root) as lake:
        lake.create_table("t", [{"id": 1}])
        lake.run(lambda txn: txn.append("t", [{"id": 2}]))
        with lake.transaction() as txn:
            threading.setprofile(note)
            sys.setprofile(note)
            try:
                txn.append("t", [{"id": 3}])
                txn.commit()
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
    return {Path(name).relative_to(LIBRARY) for name in found if Path(name).is_relative_to(LIBRARY)}


def main(arguments: list[str]) -> int:
    files = passed()
    if "--files" in arguments:
        print(*sorted(map(str, files)), sep="\n")
    print(f"a warm append passes {len(files)} files in {len({f.parent for f in files})} folders")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Perform ``pip install`` as the pages show it, with the wheel built from this checkout.

Nothing is downloaded: dependencies of LakeVilla are left out. The wheel is installed into a
directory of its own, and imported, at the first call; each call checks the extras in it. Any other
package must be installed already.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

ASKED = re.compile(r"(?:lakevilla|\.)(?:\[([\w,-]+)\])?")


def install(dist: str, target: Path) -> None:
    """Install the wheel in ``dist``, and import it from the directory where it was installed."""
    # From a checkout, `pip install .` builds the same wheel.
    options = ["--no-index", "--no-deps", "--find-links", dist, "--target", str(target)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *options, "lakevilla"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    loaded = subprocess.run(
        [sys.executable, "-c", "import lakevilla; print(lakevilla.__file__)"],
        env={**os.environ, "PYTHONPATH": str(target)},
        cwd=target,
        capture_output=True,
        text=True,
        check=False,
    )
    if not loaded.stdout.startswith(str(target)):
        sys.exit(f"the wheel was installed and is not imported: {loaded.stdout}{loaded.stderr}")


def is_installed(requirement: str) -> bool:
    try:
        distribution(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    except PackageNotFoundError:
        return False
    return True


verb, *asked = sys.argv[1:]
named = [found for name in asked if (found := ASKED.fullmatch(name)) is not None]
others = [name for name in asked if not ASKED.fullmatch(name)]
if verb != "install" or not asked or not all(map(is_installed, others)):
    sys.exit(f"the pages say `pip install lakevilla[extra]`, not {sys.argv[1:]}")
target = Path(os.environ["DIST"], "installed")
if not target.exists():
    install(os.environ["DIST"], target)
(wheel,) = distributions(path=[str(target)])
extras = set(wheel.metadata.get_all("Provides-Extra") or ())
wanted = {extra for name in named if name[1] for extra in name[1].split(",")}
if not wanted <= extras:
    sys.exit(f"lakevilla has no extra {sorted(wanted - extras)}: it has {sorted(extras)}")

"""Jars from Maven Central, by the resolver that Spark brings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache"
FETCH_SECONDS = 300


def java() -> str:
    """Return the java that Spark would run."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def spark_jars() -> Path:
    """Return the directory of the jars that PySpark brings."""
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def fetch(modules: Path, directory: Path) -> None:
    """Fetch the jars that an Ivy file names into a directory, once.

    Raises
    ------
    RuntimeError
        They can't be had.
    """
    (ivy,) = spark_jars().glob("ivy-*.jar")
    command = [java(), "-jar", str(ivy), "-cache", str(CACHE / "ivy" / "cache")]
    command += ["-ivy", str(modules)]
    command += ["-retrieve", f"{directory}/[artifact]-[revision](-[classifier]).[ext]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{modules.name}: {(done.stdout + done.stderr)[-3000:]}")

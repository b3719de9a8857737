"""A reused Python worker does not read an archive again for each package imported from it."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from zipimport import zipimporter

import pytest

from lakevilla.engines.spark.reused import forget_archives, in_worker


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[str]:
    """An archive on the path with a package that contains two packages."""
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name in ("outer/__init__", "outer/one/__init__", "outer/two/__init__", "outer/two/m"):
            file.writestr(f"{name}.py", "VALUE = 1\n")
    sys.path.insert(0, str(path))
    yield str(path)
    sys.path.remove(str(path))
    for name in [name for name in sys.modules if name.split(".")[0] == "outer"]:
        del sys.modules[name]
    for cached in [cached for cached in sys.path_importer_cache if cached.startswith(str(path))]:
        del sys.path_importer_cache[cached]


@pytest.fixture
def jar(tmp_path: Path) -> Iterator[str]:
    """A Spark package (a jar) on the path with a Python module in it."""
    path = tmp_path / "package.jar"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("within_jar.py", "VALUE = 1\n")
    sys.path.insert(0, str(path))
    yield str(path)
    sys.path.remove(str(path))
    sys.modules.pop("within_jar", None)
    sys.path_importer_cache.pop(str(path), None)


def finders(archive: str) -> list[str]:
    return [path for path in sys.path_importer_cache if path.startswith(archive)]


def in_directory(finder: object) -> bool:
    return not isinstance(finder, zipimporter)


def test_a_task_keeps_only_the_outermost_path_finder_of_an_archive(archive: str) -> None:
    with in_worker():
        importlib.import_module("outer.one")
        importlib.import_module("outer.two")
        assert len(finders(archive)) == 2
    assert finders(archive) == [archive]
    importlib.invalidate_caches()  # as Spark does before each task
    assert importlib.import_module("outer.two.m").VALUE == 1
    forget_archives()
    assert finders(archive) == [archive]


def test_forget_archives_keeps_the_path_finders_of_directories(archive: str) -> None:
    before = {path for path, finder in sys.path_importer_cache.items() if in_directory(finder)}
    forget_archives()
    assert before
    assert before <= set(sys.path_importer_cache)


def test_a_jar_is_searched_again_only_by_an_import_of_the_next_task(jar: str) -> None:
    with in_worker():
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("nowhere_at_all")
        assert finders(jar) == [jar]
    assert finders(jar) == []
    importlib.invalidate_caches()
    assert importlib.import_module("within_jar").VALUE == 1

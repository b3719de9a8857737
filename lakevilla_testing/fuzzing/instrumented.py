"""Instrument the library's modules by atheris as they are imported, each once until it changes.

To instrument all of them takes 18 seconds of a processor, to load them a tenth of that. The numbers
of a module's counters are in its code: so code is kept with the first of them, and counters before
it that no module has are left out. An import in another order, or a change, instruments a module
again.
"""

from __future__ import annotations

import hashlib
import marshal
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import version
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import atheris
from atheris.instrument_bytecode import patch_code

#: What stands for the module of atheris among the constants of kept code.
_ATHERIS = "the module of atheris"
#: A module's first counter is a multiple of this: one that has grown a little pushes no other.
_APART = 64


def instrument(package: str, directory: Path) -> None:
    """Instrument the modules of a package from now on; their code is kept in the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    sys.meta_path.insert(0, _Finder(package, directory))


def instrumented_code(code: CodeType) -> CodeType:
    """Return the code of one function with counters."""
    found: CodeType = patch_code(code, trace_dataflow=True)
    return found


class _Counters:
    """The counters of atheris, of which ``next`` is free."""

    def __init__(self) -> None:
        self._reserve = atheris._reserve_counter
        self.next = 0
        atheris._reserve_counter = self.reserve

    def reserve(self) -> int:
        number: int = self._reserve()
        self.next = number + 1
        return number

    def reserve_up_to(self, number: int) -> None:
        while self.next < number:
            self.reserve()


class _Finder(MetaPathFinder):
    def __init__(self, package: str, directory: Path) -> None:
        self._package, self._directory, self._counters = package, directory, _Counters()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != self._package:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader, self._directory / fullname, self._counters)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, plain: SourceFileLoader, kept: Path, counters: _Counters) -> None:
        super().__init__(plain.name, plain.path)
        self._kept, self._counters = kept, counters

    def get_code(self, fullname: str) -> CodeType | None:
        about = f"{sys.version} {version('atheris')} {self.path}".encode()
        digest = hashlib.sha1(about + self.get_data(self.path)).hexdigest()
        counters = self._counters
        if self._kept.exists():
            known, first, end, code = marshal.loads(self._kept.read_bytes())
            if known == digest and first >= counters.next:
                counters.reserve_up_to(end)
                return _with_constants(code, lambda one: atheris if one == _ATHERIS else one)
        plain = super().get_code(fullname)
        if plain is None:
            return None
        first = -(-counters.next // _APART) * _APART
        counters.reserve_up_to(first)
        made = instrumented_code(plain)
        stored = _with_constants(made, lambda one: _ATHERIS if one is atheris else one)
        self._kept.write_bytes(marshal.dumps((digest, first, counters.next, stored)))
        return made


def _with_constants(code: CodeType, change: Callable[[Any], Any]) -> CodeType:
    """Return code, and that of the functions in it, with other constants."""
    constants = tuple(
        _with_constants(one, change) if isinstance(one, CodeType) else change(one)
        for one in code.co_consts
    )
    return code.replace(co_consts=constants)

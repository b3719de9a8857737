"""What a profile says about its lake."""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from dbt.adapters.contracts.connection import Credentials
from dbt_common.exceptions import DbtRuntimeError

import lakevilla as lv

#: The catalog under which ``information_schema`` lists a lake's tables.
LAKE = "lake"
#: The value of ``lakevilla_branch`` that gives each run a branch with a name of its own.
RUN = "run"
_ISOLATIONS = ("serializable", "snapshot", "write-serializable")


@dataclass
class LakeVillaCredentials(Credentials):
    """A target of ``type: lakevilla``.

    Attributes
    ----------
    root : str
        The lake, as ``lakevilla.connect`` takes it: a path, or ``s3://bucket/prefix``.
    storage_options : dict, optional
        As for ``lakevilla.connect``.
    settings : dict, optional
        Fields of ``lakevilla.Settings``.
    isolation : str
        The isolation of each model's transaction.
    branch : str, optional
        A branch that exists, which is read and written instead of the lake itself.
    lakevilla_branch : str, optional
        ``run``: each run works on a branch of its own, which is merged if everything passed. Any
        other value is the name of that branch.
    """

    database: str = LAKE
    schema: str = ""
    root: str = ""
    storage_options: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    isolation: str = "snapshot"
    branch: str | None = None
    lakevilla_branch: str | None = None

    @classmethod
    def validate(cls, data: Any) -> None:
        """Refuse what no target of this type has: a word that is misspelt would have no effect."""
        _refuse_unknown("a target of type lakevilla", data, [one.name for one in fields(cls)])
        super().validate(data)

    def __post_init__(self) -> None:
        for name in ("root", "schema"):
            if not getattr(self, name):
                raise DbtRuntimeError(f"a target of type lakevilla needs {name}: add it")
        if self.database != LAKE:
            raise DbtRuntimeError(
                f"a lake is one database, with the name {LAKE}: leave database out of the target "
                f"(it is {self.database!r}), and name the lake by root"
            )
        if self.isolation not in _ISOLATIONS:
            raise DbtRuntimeError(
                f"isolation is {self.isolation!r}: choose one of {', '.join(_ISOLATIONS)}"
            )
        if self.settings:
            _refuse_unknown("settings", self.settings, [one.name for one in fields(lv.Settings)])
        if self.branch and self.lakevilla_branch:
            raise DbtRuntimeError(
                f"a branch is merged into the lake itself, and not into branch {self.branch!r}: "
                "leave out branch or lakevilla_branch"
            )

    @property
    def type(self) -> str:
        return "lakevilla"

    @property
    def unique_field(self) -> str:
        return self.root

    def _connection_keys(self) -> tuple[str, ...]:
        return ("root", "database", "schema", "isolation", "branch", "lakevilla_branch")


def _refuse_unknown(where: str, given: Any, known: list[str]) -> None:
    for name in given:
        if name not in known:
            close = get_close_matches(str(name), known, n=1)
            raise DbtRuntimeError(
                f"{where} has no {name!r}"
                + (f"; did you mean {close[0]}?" if close else f": choose among {', '.join(known)}")
            )

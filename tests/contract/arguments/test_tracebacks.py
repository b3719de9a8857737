"""Tracebacks of a caller's mistakes end at the library's border; those of faults are whole."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.api.border import at_border

LIBRARY = str(Path(lv.__file__).parent)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path_factory.mktemp("lake")) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        yield lake


def frames(call: Callable[[], object]) -> list[str]:
    """The functions in the traceback of a call, those of the library by their file."""
    with pytest.raises(Exception, match=r".") as raised:
        call()
    return [
        Path(one.filename).name if one.filename.startswith(LIBRARY) else one.name
        for one in traceback.extract_tb(raised.value.__traceback__)
    ][1:]


MISTAKES: list[Callable[[lv.Lake], Any]] = [
    lambda lake: lake.read("stok"),
    lambda lake: lake["stok"],
    lambda lake: lake.table("stock").read(["skuu"]),
    lambda lake: lake.sql("SELECT skuu FROM stock"),
    lambda lake: lake.session().sql("SELECT * FROM stok"),
    lambda lake: lake.snapshot(version=99),
    lambda lake: lake.on("night"),
    lambda lake: lake.create_table("stock", {"a": "int"}),
    lambda lake: lake.transaction(isolation="none"),
    lambda lake: lv.connect("ftp://host/lake"),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_callers_mistake_shows_one_frame_of_the_library(
    lake: lv.Lake, mistake: Callable[[lv.Lake], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert frames(lambda: mistake(lake)) == ["<lambda>", "<lambda>", "border.py"]
    monkeypatch.setenv("LAKEVILLA_TRACEBACK", "full")
    assert len(frames(lambda: mistake(lake))) > 3


def test_the_frames_of_a_function_that_the_caller_passes_stay(lake: lv.Lake) -> None:
    def load(txn: lv.Transaction) -> None:
        check(txn)

    def check(txn: lv.Transaction) -> None:
        txn.append("stok", [{"sku": "jam"}])

    assert frames(lambda: lake.run(load)) == ["<lambda>", "border.py", "load", "check"]


def test_the_frames_of_faults_and_of_foreign_errors_are_whole(lake: lv.Lake) -> None:
    def loses(txn: lv.Transaction) -> None:
        txn.read("stock")
        lake.run(lambda other: other.update("stock", {"qty": "qty + 1"}, where="true"))
        txn.append("stock", [{"sku": "jam", "qty": 1}])

    def divides(txn: lv.Transaction) -> float:
        return 1 / 0

    assert "run.py" in frames(lambda: lake.run(loses, attempts=1))
    assert "run.py" in frames(lambda: lake.run(divides))


def test_an_error_keeps_the_foreign_error_that_caused_it() -> None:
    @at_border
    def call() -> None:
        try:
            raise KeyError("a")
        except KeyError:
            raise lv.InvalidOperation("b")  # noqa: B904 (its context shall stay)

    with pytest.raises(lv.InvalidOperation) as raised:
        call()
    assert isinstance(raised.value.__context__, KeyError)
    assert not raised.value.__suppress_context__
    assert raised.value.__context__.__traceback__ is not None


def test_a_warning_of_connect_points_to_the_caller(tmp_path: Path) -> None:
    with lv.connect(tmp_path) as lake:
        lake.create_table("t", {"n": "int"})
    with pytest.warns(lv.LakeVillaWarning, match="lies inside") as noted:
        lv.connect(tmp_path / "t" / "inner")
    assert noted[0].filename == __file__


def test_the_variables_that_a_traceback_shows_hold_no_storage_option() -> None:
    """Tools such as rich, Sentry and ``pytest -l`` show the variables of each frame."""
    with pytest.raises(lv.InvalidOperation) as caught:
        lv.connect(
            "s3://b/lake", storage_options={"AWS_SECRET_ACCESS_KEY": "-".join(["hunter", "2"])}
        )
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    found = [frame.name for frame in shown.stack if "hunter-2" in repr(frame.locals)]
    assert found == []

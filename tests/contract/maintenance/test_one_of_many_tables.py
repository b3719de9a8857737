"""Reports on several tables at once: a fault of one table does not hide the others."""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.store.base import Failure, GetOutcome, ObjectInfo, Store, Token, WrappedStore
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.stores import interrupted, is_head


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


@pytest.fixture
def far(place: Place, tmp_path: Path) -> Path:
    """Create a lake of ``a``, ``b`` and the external table ``far``; return the path of ``far``."""
    elsewhere = Place(str(tmp_path / "elsewhere"))
    elsewhere.write("t", [{"id": 1}])
    with place.connect() as lake:
        lake.create_table("a", [{"id": 1}])
        lake.register("far", elsewhere.uri("t"))
        lake.create_table("b", [{"id": 1}])
        lake.run(lambda txn: txn.append("far", [{"id": 2}]))
    return Path(elsewhere.uri("t"))


def test_a_table_that_was_moved_away_is_left_out_and_reported(
    place: Place, far: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.move(far, far.with_name("moved"))
    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as lake:
        with (
            caplog.at_level(logging.WARNING, logger="lakevilla"),
            pytest.warns(lv.LakeVillaWarning, match="table far is left out") as shown,
        ):
            assert [table.name for table in lake.tables()] == ["a", "b"]
        (event,) = (event for event in events if event.kind == "left_out")
        assert event.detail["table"] == "far"
        assert event.message in caplog.messages
        assert [str(one.message) for one in shown] == [event.message]
        assert shown[0].filename == __file__, "it points at the caller"
        now = lake.snapshot()
        assert set(now.versions) == {"a", "b"}
        assert now.read("a").num_rows == 1, "the snapshot goes on"
        with pytest.raises(lv.TableNotFound, match="unregister"):
            now.read("far")
        past = lake.snapshot(version=3)
        assert set(past.versions) == {"a", "b"}
        with pytest.raises(lv.VersionNotFound, match="not kept"):
            past.read("far")
        kinds = [(finding.kind, finding.severity) for finding in lake.doctor().findings]
        assert kinds == [("table_lost", "error")]
        lake.unregister("far")
        events.clear()
        assert [table.name for table in lake.tables()] == ["a", "b"]
        assert "left_out" not in [event.kind for event in events]


@pytest.mark.parametrize("command", ["tables", "snapshot"])
def test_a_command_reports_tables_that_it_leaves_out_on_stderr(
    place: Place, far: Path, command: str
) -> None:
    shutil.move(far, far.with_name("moved"))
    result = CliRunner().invoke(app, [command, place.root, "--json"])
    assert result.exit_code == (1 if command == "tables" else 0), "who lists tables is told"
    told = json.loads(result.stdout)
    rows = told if command == "tables" else told["tables"]
    assert [row.get("name", row.get("table")) for row in rows] == ["a", "b"]
    assert result.stderr.startswith("table far is left out: ")


class OutOfOrder(WrappedStore):
    """A store that refuses all requests for one table."""

    def __init__(self, inner: Store, table: str) -> None:
        super().__init__(inner)
        self.table = table

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        if key.startswith(f"{self.table}/"):
            return Failure("access denied", ambiguous=False, permanent=True)
        return super().get(key, known, byte_range)

    def list(
        self, prefix: str, start_after: str | None = None, until: str | None = None
    ) -> list[ObjectInfo] | Failure:
        if prefix.startswith(self.table):
            return Failure("access denied", ambiguous=False, permanent=True)
        return super().list(prefix, start_after, until)


def test_a_table_to_which_the_store_denies_access_is_not_left_out(place: Place, far: Path) -> None:
    with place.connect() as lake:
        inside(lake).store = OutOfOrder(inside(lake).store, "b")
        with pytest.raises(lv.StoreError, match="access denied"):
            lake.tables()
        with pytest.raises(lv.StoreError, match="access denied"):
            lake.snapshot().versions  # noqa: B018


def names(lake: lv.Lake) -> list[str]:
    assert sorted(lake.snapshot().versions) == sorted(table.name for table in lake.tables())
    return [table.name for table in lake.tables()]


def test_unregister_removes_only_the_name_while_the_table_has_another(
    place: Place, far: Path
) -> None:
    with place.connect() as lake:
        lake.register("away", str(far))
        assert names(lake) == ["far", "a", "b"], "it is shown by its first name"
        assert lake.snapshot().read("away").num_rows == 2
        lake.run(lambda txn: txn.append("away", [{"id": 3}]))
        assert lake.history(1)[0].tables == ("far",)
        lake.unregister("away")
        assert names(lake) == ["far", "a", "b"]
        with pytest.raises(lv.TableNotFound):
            lake.snapshot().read("away")
        # The table also stays if its first name is removed.
        lake.register("away", str(far))
        lake.unregister("far")
    with place.connect() as lake, Place(f"{place.root}-2").connect() as other:
        assert names(lake) == ["away", "a", "b"]
        assert lake.snapshot().read("away").num_rows == 3
        with pytest.raises(lv.InvalidOperation, match="belongs to the lake"):
            other.register("far", str(far))
        lake.unregister("away")
        assert names(lake) == ["a", "b"]
        other.register("far", str(far))
        assert other.snapshot().read("far").num_rows == 3


def test_a_table_below_the_root_keeps_its_path_as_a_name(place: Place, far: Path) -> None:
    with place.connect() as lake:
        lake.register("second", "a")
        assert names(lake) == ["far", "a", "b"]
        lake.unregister("second")
        assert names(lake) == ["far", "a", "b"]
        lake.run(lambda txn: txn.append("a", [{"id": 2}]))
        lake.register("second", "a")
        lake.unregister("a")
        assert names(lake) == ["far", "second", "b"]
        lake.unregister("second")
        assert names(lake) == ["far", "b"]
        with pytest.raises(lv.TableNotFound, match="register"):
            lake.snapshot().read("a")


def test_two_clients_that_unregister_the_same_name_leave_the_other_name(
    place: Place, far: Path
) -> None:
    with place.connect() as lake, place.connect() as other:
        lake.register("away", str(far))
        with interrupted(lake, is_head, lambda: other.unregister("far")):
            lake.unregister("far")
        assert names(lake) == ["away", "a", "b"]
        assert other.snapshot().read("away").num_rows == 2


def test_two_clients_that_unregister_the_last_two_names_remove_the_table(
    place: Place, far: Path
) -> None:
    with place.connect() as lake, place.connect() as other:
        lake.register("away", str(far))
        with interrupted(lake, is_head, lambda: other.unregister("away")):
            lake.unregister("far")
        assert names(lake) == ["a", "b"]


def test_a_table_with_a_damaged_log_is_warned_of_only_once(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("a", [{"id": 1}])
        lake.create_table("b", [{"id": 1}])
    Path(place.root, "a/_delta_log", f"{0:020}.json").write_bytes(b"{")
    with place.connect() as lake:
        with pytest.warns(lv.LakeVillaWarning, match="table a is left out: .*json"):
            assert [table.name for table in lake.tables()] == ["b"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [table.name for table in lake.tables()] == ["b"]

"""The simulated foreign clients, held against a real one."""

import json

import deltalake
import pytest

from lakevilla.store.base import ABSENT, ANY
from lakevilla.store.effects import delete, list_objects, put, sleep
from lakevilla.testing.tables import delta_writer as foreign
from lakevilla.testing.tables.delta_reader import read_log
from lakevilla.testing.tables.reader import Unreadable, run_now, table_rows
from lakevilla.testing.world.faults import Fault
from lakevilla.testing.world.scheduler import Simulation

COLUMNS = {"id": "long", "name": "string"}


def rows(*ids, name="x"):
    return [{"id": number, "name": name} for number in ids]


def run(*programs):
    simulation = Simulation(1)

    def program(client):
        for step in programs:
            yield from step(client)

    simulation.add("foreign", program)
    simulation.run()
    return simulation


def create(*ids, **more):
    return lambda c: foreign.create(c, "t", COLUMNS, rows(*ids), **more)


def append(*ids, name="x"):
    return lambda c: foreign.append(c, "t", rows(*ids, name=name))


def read_with_deltalake(simulation, directory):
    simulation.store.dump(directory)
    table = deltalake.DeltaTable(str(directory / "t"))
    return table.version(), ordered(table.to_pyarrow_table().to_pylist())


def ordered(found):
    return sorted((dict(row) for row in found), key=lambda row: row["id"])


STEPS = {
    "append": append(7, 8),
    "update": lambda c: foreign.rewrite(c, "t", lambda r: {**r, "name": "new"}, files=1),
    "delete": lambda c: foreign.rewrite(c, "t", lambda r: None if r["id"] == 1 else r),
    "optimize": lambda c: foreign.optimize(c, "t"),
    "restore": lambda c: foreign.restore(c, "t", 1),
    "property": lambda c: foreign.set_property(c, "t", "delta.appendOnly", "false"),
    "checkpoint": lambda c: foreign.write_checkpoint(c, "t"),
    "recreate": lambda c: foreign.drop_and_recreate(c, "t", COLUMNS, rows(9)),
}


@pytest.mark.parametrize("partition_by", [[], ["name"]])
@pytest.mark.parametrize("step", STEPS)
def test_real_reader_reads_the_same(step, partition_by, tmp_path):
    simulation = run(
        create(1, 2, partition_by=partition_by), append(3), append(4, name=None), STEPS[step]
    )
    version, found = read_with_deltalake(simulation, tmp_path)
    assert found == ordered(table_rows(simulation.store, "t"))
    assert version == run_now(simulation.store, read_log("t")).version


def test_restore_after_checkpoint_clean_up_and_vacuum(tmp_path):
    simulation = run(
        create(1),
        append(2),
        STEPS["optimize"],
        STEPS["checkpoint"],
        append(3),
        lambda c: sleep(10 * 86400),
        lambda c: foreign.clean_log(c, "t", 86400),
        lambda c: foreign.vacuum(c, "t", 7 * 86400),
    )
    names = {key.rsplit("/", 1)[1] for key in simulation.store.objects if "_delta_log" in key}
    assert f"{1:020}.json" not in names
    assert simulation.fired[Fault.CLEAN_UP] == 3
    assert (
        sum(
            key.endswith(".parquet") and "_delta_log" not in key for key in simulation.store.objects
        )
        == 2
    )
    version, found = read_with_deltalake(simulation, tmp_path)
    assert (version, found) == (3, rows(1, 2, 3))
    assert ordered(table_rows(simulation.store, "t")) == rows(1, 2, 3)


def test_vacuum_leaves_directories_that_begin_with_an_underscore():
    simulation = run(
        create(1),
        lambda c: put("t/_lakevilla/lake.json", b"{}", ABSENT),
        lambda c: put("t/orphan.parquet", b"", ANY),
        lambda c: sleep(86400),
        lambda c: foreign.vacuum(c, "t", 3600),
    )
    assert "t/_lakevilla/lake.json" in simulation.store.objects
    assert "t/orphan.parquet" not in simulation.store.objects


def test_two_foreign_writers_lose_nothing():
    for seed in range(30):
        simulation = Simulation(seed)
        run_now(simulation.store, foreign.create(_maker(simulation), "t", COLUMNS))
        for number in range(3):

            def program(client, number=number):
                done = 0
                for index in range(3):
                    done += yield from foreign.append(client, "t", rows(10 * number + index))
                return done

            simulation.add(f"w{number}", program)
        simulation.run()
        written = sum(client.result or 0 for client in simulation.clients)
        assert len(table_rows(simulation.store, "t")) == written >= 8


def _maker(simulation):
    def nothing(client):
        yield from ()

    return simulation.add("maker", nothing)


def test_foreign_writer_refuses_a_guarded_table():
    protocol = {
        "protocol": {
            "minReaderVersion": 1,
            "minWriterVersion": 7,
            "writerFeatures": ["lakevilla"],
        }
    }
    key = f"t/_delta_log/{1:020}.json"
    simulation = run(
        create(1), lambda c: put(key, json.dumps(protocol).encode(), ABSENT), append(2)
    )
    assert run_now(simulation.store, read_log("t")).version == 1
    assert table_rows(simulation.store, "t") == rows(1)


@pytest.mark.parametrize(
    ("gone", "message"),
    [(f"t/_delta_log/{1:020}.json", "lacks"), (None, "lacks its file")],
)
def test_reader_refuses_a_gap_and_a_missing_file(gone, message):
    simulation = run(create(1), append(2), append(3))
    data = next(key for key in simulation.store.objects if "part-" in key)
    run_now(simulation.store, delete(gone or data))
    with pytest.raises(Unreadable, match=message):
        table_rows(simulation.store, "t")


def test_reader_reads_an_older_version():
    simulation = run(create(1), append(2), STEPS["checkpoint"], append(3))
    assert ordered(table_rows(simulation.store, "t", 1)) == rows(1, 2)
    assert run_now(simulation.store, read_log("elsewhere")) is None
    assert run_now(simulation.store, list_objects("t"))[0].key.startswith("t/_delta_log")

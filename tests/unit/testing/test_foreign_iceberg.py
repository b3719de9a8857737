"""The simulated foreign clients of Iceberg tables, and their reader, held against pyiceberg."""

import pytest

from lakevilla.store.base import ANY
from lakevilla.store.effects import delete, put, sleep
from lakevilla.testing.tables import iceberg_writer as foreign
from lakevilla.testing.tables.iceberg_reader import metadata_key, read_metadata, uri_of
from lakevilla.testing.tables.reader import Unreadable, read_table, run_now, table_rows
from lakevilla.testing.world.faults import Fault
from lakevilla.testing.world.scheduler import Simulation
from tests.simulated_iceberg import opened

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


def ordered(found):
    return sorted((dict(row) for row in found), key=lambda row: row["id"])


STEPS = {
    "append": append(7, 8),
    "update": lambda c: foreign.rewrite(c, "t", lambda r: {**r, "name": "new"}, files=1),
    "delete": lambda c: foreign.rewrite(c, "t", lambda r: None if r["id"] == 1 else r),
    "optimize": lambda c: foreign.optimize(c, "t"),
    "manifests": lambda c: foreign.rewrite_manifests(c, "t"),
    "restore": lambda c: foreign.restore(c, "t", 1),
    "property": lambda c: foreign.set_property(c, "t", "note", "x"),
    "expire": lambda c: foreign.expire(c, "t", 0),
    "recreate": lambda c: foreign.drop_and_recreate(c, "t", COLUMNS, rows(9)),
}


@pytest.mark.parametrize("step", STEPS)
def test_pyiceberg_reads_the_same(step):
    simulation = run(create(1, 2), append(3), lambda c: sleep(1), append(4, name=None), STEPS[step])
    table = run_now(simulation.store, read_table("t"))
    assert table.version == (0 if step == "recreate" else 3)
    real = opened(simulation.store, "t", table.version)
    found = ordered(real.scan().to_arrow().to_pylist())
    assert found == ordered(table_rows(simulation.store, "t"))
    # Bounds are told as pyiceberg reads them: a filter finds what it should.
    for row in found:
        assert real.scan(row_filter=f"id = {row['id']}").to_arrow().num_rows == 1
    assert set(table.live_files) == {
        task.file.file_path.removeprefix(uri_of("t") + "/") for task in real.scan().plan_files()
    }


def test_expired_snapshots_and_orphans_are_gone_and_the_rest_is_there():
    simulation = run(
        create(1, properties={"write.metadata.previous-versions-max": "2"}),
        append(2),
        STEPS["optimize"],
        append(3),
        lambda c: put("t/data/orphan.parquet", b"", ANY),
        lambda c: put("t/_lakevilla/lake.json", b"{}", ANY),
        lambda c: sleep(10 * 86400),
        lambda c: foreign.expire(c, "t", 86400),
        lambda c: foreign.remove_orphans(c, "t", 3 * 86400),
    )
    assert simulation.fired[Fault.CLEAN_UP] == 2
    kept = [key for key in simulation.store.objects if key.endswith(".parquet")]
    assert len(kept) == 2, "the rewritten file and the last append"
    assert metadata_key("t", 0) not in simulation.store.objects
    assert "t/_lakevilla/lake.json" in simulation.store.objects
    assert ordered(table_rows(simulation.store, "t")) == rows(1, 2, 3)
    assert ordered(opened(simulation.store, "t", 4).scan().to_arrow().to_pylist()) == rows(1, 2, 3)


def test_two_foreign_writers_lose_nothing():
    for seed in range(10):
        simulation = Simulation(seed)

        def nothing(client):
            yield from ()

        maker = simulation.add("maker", nothing)
        run_now(simulation.store, foreign.create(maker, "t", COLUMNS))
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


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        (metadata_key("t", 1), "lacks"),
        ("/data/", "lacks its file"),
        ("-m0.avro", "lacks metadata"),
        ("/snap-", "lacks metadata/snap-"),
    ],
)
def test_reader_refuses_a_gap_and_a_missing_object(gone, message):
    simulation = run(create(1), append(2), append(3))
    for key in [key for key in simulation.store.objects if gone in key]:
        run_now(simulation.store, delete(key))
    with pytest.raises(Unreadable, match=message):
        table_rows(simulation.store, "t")


def test_reader_reads_an_older_version():
    simulation = run(create(1), append(2), append(3))
    assert ordered(table_rows(simulation.store, "t", 1)) == rows(1, 2)
    assert run_now(simulation.store, read_metadata("elsewhere")) is None

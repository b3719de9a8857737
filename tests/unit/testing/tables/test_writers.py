"""The simulated foreign clients of both formats, and their readers, compared with real clients."""

import json

import deltalake
import pytest

from lakevilla.store.base import ABSENT, ANY
from lakevilla.store.effects import delete, list_objects, put, sleep
from lakevilla_testing.tables import delta_cleaner, delta_writer, iceberg_writer
from lakevilla_testing.tables.bare import UnreadableTable
from lakevilla_testing.tables.delta_reader import read_log
from lakevilla_testing.tables.iceberg_reader import metadata_key, read_metadata, uri_of
from lakevilla_testing.tables.reader import read_table, run_now, table_rows
from lakevilla_testing.world.faults import Fault
from lakevilla_testing.world.scheduler import Simulation
from tests.support.simulated.iceberg import opened

COLUMNS = {"id": "long", "name": "string"}

#: The operations of each simulated client on a table of its format, and the version after each.
STEPS = {
    delta_writer: {
        "append": lambda c: delta_writer.append(c, "t", rows(7, 8)),
        "update": lambda c: delta_writer.rewrite(c, "t", renamed, files=1),
        "delete": lambda c: delta_writer.rewrite(c, "t", without_the_first),
        "optimize": lambda c: delta_writer.optimize(c, "t"),
        "restore": lambda c: delta_writer.restore(c, "t", 1),
        "property": lambda c: delta_writer.set_property(c, "t", "delta.appendOnly", "false"),
        "checkpoint": lambda c: delta_cleaner.write_checkpoint(c, "t"),
        "recreate": lambda c: delta_writer.drop_and_recreate(c, "t", COLUMNS, rows(9)),
    },
    iceberg_writer: {
        "append": lambda c: iceberg_writer.append(c, "t", rows(7, 8)),
        "update": lambda c: iceberg_writer.rewrite(c, "t", renamed, files=1),
        "delete": lambda c: iceberg_writer.rewrite(c, "t", without_the_first),
        "optimize": lambda c: iceberg_writer.optimize(c, "t"),
        "manifests": lambda c: iceberg_writer.rewrite_manifests(c, "t"),
        "restore": lambda c: iceberg_writer.restore(c, "t", 1),
        "property": lambda c: iceberg_writer.set_property(c, "t", "note", "x"),
        "expire": lambda c: iceberg_writer.expire(c, "t", 0),
        "recreate": lambda c: iceberg_writer.drop_and_recreate(c, "t", COLUMNS, rows(9)),
    },
}


def rows(*ids, name="x"):
    return [{"id": number, "name": name} for number in ids]


def renamed(row):
    return {**row, "name": "new"}


def without_the_first(row):
    return None if row["id"] == 1 else row


def run(*programs):
    simulation = Simulation(1)

    def program(client):
        for step in programs:
            yield from step(client)

    simulation.add("foreign", program)
    simulation.run()
    return simulation


def create(writer, *ids, **more):
    return lambda c: writer.create(c, "t", COLUMNS, rows(*ids), **more)


def append(writer, *ids, name="x"):
    return lambda c: writer.append(c, "t", rows(*ids, name=name))


def ordered(found):
    return sorted((dict(row) for row in found), key=lambda row: row["id"])


def read_with_deltalake(simulation, directory):
    simulation.store.dump(directory)
    table = deltalake.DeltaTable(str(directory / "t"))
    return table.version(), ordered(table.to_pyarrow_table().to_pylist())


@pytest.mark.parametrize("partition_by", [[], ["name"]])
@pytest.mark.parametrize("step", STEPS[delta_writer])
def test_deltalake_reads_the_same_rows_as_the_simulated_delta_reader(step, partition_by, tmp_path):
    simulation = run(
        create(delta_writer, 1, 2, partition_by=partition_by),
        append(delta_writer, 3),
        append(delta_writer, 4, name=None),
        STEPS[delta_writer][step],
    )
    version, found = read_with_deltalake(simulation, tmp_path)
    assert found == ordered(table_rows(simulation.store, "t"))
    assert version == run_now(simulation.store, read_log("t")).version


@pytest.mark.parametrize("step", STEPS[iceberg_writer])
def test_pyiceberg_reads_the_same_rows_as_the_simulated_iceberg_reader(step):
    simulation = run(
        create(iceberg_writer, 1, 2),
        append(iceberg_writer, 3),
        lambda c: sleep(1),
        append(iceberg_writer, 4, name=None),
        STEPS[iceberg_writer][step],
    )
    table = run_now(simulation.store, read_table("t"))
    assert table.version == (0 if step == "recreate" else 3)
    real = opened(simulation.store, "t", table.version)
    found = ordered(real.scan().to_arrow().to_pylist())
    assert found == ordered(table_rows(simulation.store, "t"))
    # Bounds are compared by pyiceberg's pruning: a filter must find its rows.
    for row in found:
        assert real.scan(row_filter=f"id = {row['id']}").to_arrow().num_rows == 1
    assert set(table.live_files) == {
        task.file.file_path.removeprefix(uri_of("t") + "/") for task in real.scan().plan_files()
    }


def test_simulated_clean_up_and_vacuum_leave_a_table_that_deltalake_reads(tmp_path):
    simulation = run(
        create(delta_writer, 1),
        append(delta_writer, 2),
        STEPS[delta_writer]["optimize"],
        STEPS[delta_writer]["checkpoint"],
        append(delta_writer, 3),
        lambda c: sleep(10 * 86400),
        lambda c: delta_cleaner.clean_log(c, "t", 86400),
        lambda c: delta_cleaner.vacuum(c, "t", 7 * 86400),
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


def test_simulated_expiry_removes_old_snapshots_and_orphans_and_nothing_else():
    simulation = run(
        create(iceberg_writer, 1, properties={"write.metadata.previous-versions-max": "2"}),
        append(iceberg_writer, 2),
        STEPS[iceberg_writer]["optimize"],
        append(iceberg_writer, 3),
        lambda c: put("t/data/orphan.parquet", b"", ANY),
        lambda c: put("t/_lakevilla/lake.json", b"{}", ANY),
        lambda c: sleep(10 * 86400),
        lambda c: iceberg_writer.expire(c, "t", 86400),
        lambda c: iceberg_writer.remove_orphans(c, "t", 3 * 86400),
    )
    assert simulation.fired[Fault.CLEAN_UP] == 2
    kept = [key for key in simulation.store.objects if key.endswith(".parquet")]
    assert len(kept) == 2, "the rewritten file and the last append"
    assert metadata_key("t", 0) not in simulation.store.objects
    assert "t/_lakevilla/lake.json" in simulation.store.objects
    assert ordered(table_rows(simulation.store, "t")) == rows(1, 2, 3)
    assert ordered(opened(simulation.store, "t", 4).scan().to_arrow().to_pylist()) == rows(1, 2, 3)


def test_simulated_vacuum_keeps_directories_that_begin_with_an_underscore():
    simulation = run(
        create(delta_writer, 1),
        lambda c: put("t/_lakevilla/lake.json", b"{}", ABSENT),
        lambda c: put("t/orphan.parquet", b"", ANY),
        lambda c: sleep(86400),
        lambda c: delta_cleaner.vacuum(c, "t", 3600),
    )
    assert "t/_lakevilla/lake.json" in simulation.store.objects
    assert "t/orphan.parquet" not in simulation.store.objects


@pytest.mark.parametrize(
    ("writer", "seeds"),
    [
        pytest.param(delta_writer, 30, id="delta"),
        pytest.param(iceberg_writer, 10, id="iceberg"),
    ],
)
def test_concurrent_simulated_foreign_writers_lose_no_rows(writer, seeds):
    for seed in range(seeds):
        simulation = Simulation(seed)

        def nothing(client):
            yield from ()

        maker = simulation.add("maker", nothing)
        run_now(simulation.store, writer.create(maker, "t", COLUMNS))
        for number in range(3):

            def program(client, number=number):
                done = 0
                for index in range(3):
                    done += yield from writer.append(client, "t", rows(10 * number + index))
                return done

            simulation.add(f"w{number}", program)
        simulation.run()
        written = sum(client.result or 0 for client in simulation.clients)
        assert len(table_rows(simulation.store, "t")) == written >= 8


def test_a_simulated_foreign_writer_refuses_a_guarded_table():
    protocol = {
        "protocol": {
            "minReaderVersion": 1,
            "minWriterVersion": 7,
            "writerFeatures": ["lakevilla"],
        }
    }
    key = f"t/_delta_log/{1:020}.json"
    simulation = run(
        create(delta_writer, 1),
        lambda c: put(key, json.dumps(protocol).encode(), ABSENT),
        append(delta_writer, 2),
    )
    assert run_now(simulation.store, read_log("t")).version == 1
    assert table_rows(simulation.store, "t") == rows(1)


@pytest.mark.parametrize(
    ("writer", "gone", "message"),
    [
        (delta_writer, f"t/_delta_log/{1:020}.json", "lacks"),
        (delta_writer, "part-", "lacks its file"),
        (iceberg_writer, metadata_key("t", 1), "lacks"),
        (iceberg_writer, "/data/", "lacks its file"),
        (iceberg_writer, "-m0.avro", "lacks metadata"),
        (iceberg_writer, "/snap-", "lacks metadata/snap-"),
    ],
)
def test_a_simulated_reader_refuses_a_gap_in_the_log_and_a_missing_object(writer, gone, message):
    simulation = run(create(writer, 1), append(writer, 2), append(writer, 3))
    missing = [key for key in simulation.store.objects if gone in key]
    # Of Delta's log, one missing file is enough; of Iceberg's metadata files, only the newest is
    # read.
    for key in missing[:1] if writer is delta_writer else missing:
        run_now(simulation.store, delete(key))
    with pytest.raises(UnreadableTable, match=message):
        table_rows(simulation.store, "t")


@pytest.mark.parametrize(
    ("writer", "between", "read"),
    [
        pytest.param(delta_writer, STEPS[delta_writer]["checkpoint"], read_log, id="delta"),
        pytest.param(iceberg_writer, lambda c: sleep(0), read_metadata, id="iceberg"),
    ],
)
def test_a_simulated_reader_reads_an_older_version(writer, between, read):
    simulation = run(create(writer, 1), append(writer, 2), between, append(writer, 3))
    assert ordered(table_rows(simulation.store, "t", 1)) == rows(1, 2)
    assert run_now(simulation.store, read("elsewhere")) is None


def test_a_simulated_delta_table_begins_with_its_log():
    simulation = run(create(delta_writer, 1))
    assert run_now(simulation.store, list_objects("t"))[0].key.startswith("t/_delta_log")

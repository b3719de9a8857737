"""Text with a NUL in it is text like any other, in partitions too."""

from __future__ import annotations

import pyarrow as pa

from tests.builders import Place

ODD = "a\0'b\0"


def test_a_partition_value_with_a_nul_is_read_and_changed(place: Place) -> None:
    schema = pa.schema([("part", pa.string()), ("id", pa.int64())])
    with place.connect() as lake:
        lake.create_table("t", schema, partition_by=["part"])

        def rows() -> list[tuple[str, int]]:
            found = lake.snapshot().read("t").to_pylist()
            return sorted((row["part"], row["id"]) for row in found)

        for number, part in enumerate(("a", ODD)):
            with lake.transaction() as txn:
                txn.append("t", [{"part": part, "id": number}])
        assert rows() == [("a", 0), (ODD, 1)]
        lake.run(lambda txn: txn.update("t", {"id": "id + 10"}, "part = :p", params={"p": ODD}))
        lake.run(lambda txn: txn.update("t", {"part": ":p"}, "id = 0", params={"p": ODD}))
        assert rows() == [(ODD, 0), (ODD, 11)]
        lake.run(lambda txn: txn.upsert("t", [{"part": ODD, "id": 11}], ["part", "id"]))
        lake.run(lambda txn: txn.upsert("t", [{"part": ODD + "c", "id": 11}], "id"))
        assert rows() == [(ODD, 0), (ODD + "c", 11)]
        lake.run(lambda txn: txn.delete("t", "part = :p", params={"p": ODD}))
        assert rows() == [(ODD + "c", 11)]
        assert lake.snapshot().sql("select part from t")["part"].to_pylist() == [ODD + "c"]

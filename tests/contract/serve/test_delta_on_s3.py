"""Delta tables of a bucket, read through the gateway."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.rest import RestCatalog

import lakevilla as lv
from lakevilla.clock import SystemClock
from tests.contract.serve.gateway import serving
from tests.fixtures.s3 import S3Server
from tests.support.tables import accounts, in_order

TABLE = "/namespaces/sales/tables/t"


@pytest.mark.usefixtures("marks_in_small_files")
def test_a_table_of_a_bucket_is_read_in_this_period_and_the_next(
    s3_root: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, now = s3_server.storage_options, SystemClock.now
    reader = {
        "s3.endpoint": s3_server.endpoint,
        "s3.access-key-id": s3_server.access_key,
        "s3.secret-access-key": s3_server.secret_key,
        "s3.region": "us-east-1",
    }
    with lv.connect(s3_root, storage_options=options) as lake:
        vectors = {"delta.enableDeletionVectors": "true"}
        lake.create_table("sales/t", accounts(100), properties=vectors)
        lake.run(lambda txn: txn.delete("sales/t", "id = 3"))
        more = pa.Table.from_pylist(accounts(3))
        write_deltalake(f"{s3_root}/sales/t", more, mode="append", storage_options=options)
        expected = in_order(lake.read("sales/t"))
        for hours in (0, 42):
            monkeypatch.setattr(SystemClock, "now", lambda clock, h=hours: now(clock) + h * 3600)
            with serving(lake) as gateway:
                where = gateway.ask(TABLE).json()["metadata-location"]
                assert where.startswith(f"{s3_root}/sales/t/_lakevilla/iceberg/")
                catalog = RestCatalog("lake", uri=gateway.uri, warehouse="lake", **reader)
                found = catalog.load_table("sales.t").scan().to_arrow()
                assert in_order(found) == expected

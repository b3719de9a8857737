"""Make a bucket by the client of MinIO and put a lake into it: ``bucket_by_minio.py BUCKET``.

``AWS_ENDPOINT_URL`` names the server, ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY`` are the
keys. They default to those of docker-compose.yml.
"""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit

from minio import Minio
from minio.commonconfig import ENABLED, Filter
from minio.lifecycleconfig import LifecycleConfig, NoncurrentVersionExpiration, Rule
from minio.versioningconfig import VersioningConfig

import lakevilla as lv

ENDPOINT = os.environ.get("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
ACCESS_KEY = os.environ.get("AWS_ACCESS_KEY_ID", "lakevilla")
SECRET_KEY = os.environ.get("AWS_SECRET_ACCESS_KEY", "lakevilla-secret")


def make_bucket(client: Minio, bucket: str) -> None:
    """A bucket that keeps what was replaced or deleted for 30 days. It may be there already."""
    if not client.bucket_exists(bucket_name=bucket):
        client.make_bucket(bucket_name=bucket)
    client.set_bucket_versioning(bucket_name=bucket, config=VersioningConfig(ENABLED))
    # A rule may delete old versions of objects. It may never delete objects themselves.
    old = Rule(
        rule_id="old versions",
        status=ENABLED,
        rule_filter=Filter(prefix=""),
        noncurrent_version_expiration=NoncurrentVersionExpiration(noncurrent_days=30),
    )
    client.set_bucket_lifecycle(bucket_name=bucket, config=LifecycleConfig([old]))


def main(bucket: str) -> None:
    """Make the bucket, and two tables that change together."""
    place = urlsplit(ENDPOINT)
    secure = place.scheme == "https"
    make_bucket(Minio(place.netloc, ACCESS_KEY, SECRET_KEY, secure=secure), bucket)

    options = {
        "AWS_ENDPOINT_URL": ENDPOINT,
        "AWS_ALLOW_HTTP": "false" if secure else "true",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",  # MinIO's, unless it was told another
    }
    with lv.connect(f"s3://{bucket}/lake", storage_options=options) as lake:
        lake.create_table("stock", {"sku": "string", "qty": "bigint"}, exist_ok=True)
        lake.create_table("arrivals", {"sku": "string", "qty": "bigint"}, exist_ok=True)
        with lake.transaction() as txn:
            txn.append("stock", [{"sku": "tea", "qty": 5}])
            txn.append("arrivals", [{"sku": "tea", "qty": 5}])
        with lake.snapshot() as now:
            print(now.sql("SELECT count(*) AS deliveries FROM arrivals").to_pylist())


if __name__ == "__main__":
    main(sys.argv[1])

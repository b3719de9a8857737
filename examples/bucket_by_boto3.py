"""Make a bucket by boto3 and put a lake into it: ``bucket_by_boto3.py BUCKET``.

Keys and region come from where boto3 finds them: the environment, a profile, the machine's role.
``AWS_ENDPOINT_URL`` names a server other than Amazon's.
"""

from __future__ import annotations

import os
import sys

import boto3

import lakevilla as lv


def make_bucket(session: boto3.Session, bucket: str) -> None:
    """A bucket that keeps what was replaced or deleted for 30 days. It may be there already."""
    s3 = session.client("s3")
    region = session.region_name or "us-east-1"
    known = [each["Name"] for each in s3.list_buckets()["Buckets"]]
    if bucket not in known:
        # Amazon takes no LocationConstraint for its first region, and needs one for all others.
        elsewhere = {"CreateBucketConfiguration": {"LocationConstraint": region}}
        s3.create_bucket(Bucket=bucket, **({} if region == "us-east-1" else elsewhere))
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    # A rule may delete old versions of objects. It may never delete objects themselves.
    rule = {
        "ID": "old versions",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 30},
    }
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})


def main(bucket: str) -> None:
    """Make the bucket, and two tables that change together."""
    session = boto3.Session(region_name=os.environ.get("AWS_REGION"))
    make_bucket(session, bucket)

    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    options = {"AWS_ALLOW_HTTP": "true"} if endpoint.startswith("http://") else {}
    root = f"s3://{bucket}/lake"
    with lv.connect(root, storage_options=options, boto3_session=session) as lake:
        lake.create_table("stock", {"sku": "string", "qty": "bigint"}, exist_ok=True)
        lake.create_table("arrivals", {"sku": "string", "qty": "bigint"}, exist_ok=True)
        with lake.transaction() as txn:
            txn.append("stock", [{"sku": "tea", "qty": 5}])
            txn.append("arrivals", [{"sku": "tea", "qty": 5}])
        with lake.snapshot() as now:
            print(now.sql("SELECT count(*) AS deliveries FROM arrivals").to_pylist())


if __name__ == "__main__":
    main(sys.argv[1])

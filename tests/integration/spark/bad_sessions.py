"""A driver whose workers lack LakeVilla, and whose session is stopped then."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path


def main() -> None:
    root = sys.argv[1]
    # Workers find a site where LakeVilla can't be imported; this process has it already.
    import lakevilla as lv

    site = Path(root, "site")
    site.mkdir()
    (site / "sitecustomize.py").write_text("import sys\nsys.modules['lakevilla'] = None\n")
    here = os.environ["PYTHONPATH"]
    os.environ["PYTHONPATH"] = f"{site}:{here}"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    lake = lv.connect(f"{root}/lake", spark=session)
    embedded = lv.connect(f"{root}/lake")
    embedded.create_table("t", {"id": [1]})
    told: dict[str, object] = {}

    def error(name: str, do: Callable[[], object]) -> None:
        try:
            do()
        except Exception as met:
            told[name] = str(met)

    error("lacks_write", lambda: lake.run(lambda txn: txn.append("t", session.range(3))))
    error("lacks_read", lambda: lake.snapshot().read("t").collect())

    session.stop()
    error("stopped_read", lambda: lake.snapshot().read("t").collect())
    error("stopped_write", lambda: lake.run(lambda txn: txn.delete("t", where="id = 1")))
    error("stopped_connect", lambda: lv.connect(f"{root}/lake", spark=session))
    print("RESULT " + json.dumps(told), flush=True)


if __name__ == "__main__":
    main()

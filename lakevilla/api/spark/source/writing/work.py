"""Functions that the pickled classes of writers call in Spark's processes."""

from lakevilla.api.spark.source.writing import commit as committing
from lakevilla.api.spark.source.writing import commit as planning
from lakevilla.api.spark.source.writing import commit as rows
from lakevilla.engines.spark.reused import in_worker

__all__ = ["abort", "abort_batch", "commit", "commit_batch", "plan", "written"]

plan = in_worker()(planning.plan)
written = in_worker()(rows.written)
commit = in_worker()(committing.commit)
abort = in_worker()(committing.abort)
commit_batch = in_worker()(committing.commit_batch)
abort_batch = in_worker()(committing.abort_batch)

"""What the pickled classes of writers call, in the processes of Spark."""

from lakevilla.api.spark.source.writing import commit as committing
from lakevilla.api.spark.source.writing import plan as planning
from lakevilla.api.spark.source.writing import rows
from lakevilla.engines.spark.raising import said_first

__all__ = ["abort", "abort_batch", "commit", "commit_batch", "plan", "written"]

plan = said_first()(planning.plan)
written = said_first()(rows.written)
commit = said_first()(committing.commit)
abort = said_first()(committing.abort)
commit_batch = said_first()(committing.commit_batch)
abort_batch = said_first()(committing.abort_batch)

"""What the pickled classes of writers call, in the processes of Spark."""

from lakevilla.api.spark.source.writing.commit import abort, abort_batch, commit, commit_batch
from lakevilla.api.spark.source.writing.plan import plan
from lakevilla.api.spark.source.writing.rows import written

__all__ = ["abort", "abort_batch", "commit", "commit_batch", "plan", "written"]

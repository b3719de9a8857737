"""The data source ``lakevilla`` of a Spark session: tables of a lake, and their changes.

Spark makes and plans a source in a process of its own, and reads it in its workers: ``classes`` has
the classes that are pickled to them, thin enough to report a LakeVilla that is missing, and
``tables`` and ``changes`` have the work that is done there.
"""

from lakevilla.api.spark.source.classes import offer, register_data_source
from lakevilla.api.spark.source.tables import Access

__all__ = ["Access", "offer", "register_data_source"]

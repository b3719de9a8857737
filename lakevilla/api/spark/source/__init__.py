"""The data source ``lakevilla`` of a Spark session: tables of a lake, and their changes.

Spark makes and plans a source in a process of its own, and reads it in its workers:
``classes`` has what is pickled to them, thin enough to tell of a LakeVilla that is not
there, and ``tables`` and ``changes`` have what it does there.
"""

from lakevilla.api.spark.source.classes import offer, register_data_source
from lakevilla.api.spark.source.tables import Access

__all__ = ["Access", "offer", "register_data_source"]

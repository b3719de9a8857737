"""The data source ``lakevilla`` of a Spark session: tables of a lake, and their changes.

Spark creates and plans a source in a separate process, and reads it in its workers. ``classes`` has
the classes that are pickled to these processes; they contain so little that they can report a
missing LakeVilla. ``tables`` and ``changes`` have the work that the processes do.
"""

from lakevilla.api.spark.source.classes import offer, register_data_source
from lakevilla.api.spark.source.tables import Access

__all__ = ["Access", "offer", "register_data_source"]

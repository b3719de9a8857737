"""Writing by the data source: planned in one process of Spark, written in many, committed in one.

``classes`` has what Spark pickles, ``plan`` what its planner does, ``rows`` what each task does,
and ``commit`` what ends it. It may import the room of the source but for ``work`` and ``classes``.
"""

"""Writing by the data source: planned in one process of Spark, written in many, committed in one.

``classes`` has the classes that Spark pickles; ``commit`` has the work of its planner, the work of
each task, and the end of a write. It may import the modules of the source except for
``work`` and ``classes``.
"""

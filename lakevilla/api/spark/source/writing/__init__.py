"""Write by the data source: plan in one process of Spark, write in many, commit in one.

``classes`` has the classes that Spark pickles; ``work`` has the plan of a write, the work of each
task, and the commit. This package may import the modules of ``source`` except its ``work`` and
``classes``.
"""

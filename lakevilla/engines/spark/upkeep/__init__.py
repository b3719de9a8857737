"""Jobs beyond one pass over files: movement of rows between tasks, and the upkeep of tables.

``moving`` sends rows from task to task; the other modules each hold one verb's jobs. May import
``tasks`` and ``jobs``, and is used by ``engine`` alone.
"""

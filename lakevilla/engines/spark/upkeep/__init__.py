"""Jobs beyond one pass over files: what moves rows between tasks, and the upkeep of tables.

``parcels`` is how rows go from task to task; the other modules each hold one verb's jobs. May
import ``tasks``, ``bins`` and ``jobs``, and is used by ``engine`` alone.
"""

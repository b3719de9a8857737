"""One lake as one process knows it: caches, logs, views, the past. Knows no transaction."""

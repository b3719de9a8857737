"""The upkeep of a lake, task by task, by one client at a time (docs/design/0037-upkeep.md)."""

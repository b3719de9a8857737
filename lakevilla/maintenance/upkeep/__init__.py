"""The upkeep of a lake, task by task, by one at a time (docs/design/0037-upkeep.md)."""

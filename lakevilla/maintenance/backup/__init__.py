"""Copy a lake to another place, and make it again from a copy (docs/design/0084-backup.md)."""

"""Hostile objects in a lake's store, and what a process does that meets them (docs/security.md)."""

"""Clones of tables and of whole subtrees, as a lake offers them. It may import what ``api`` may."""

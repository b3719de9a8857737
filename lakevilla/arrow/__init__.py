"""Rows in Arrow, as callers pass them and as tables store them. Knows no table format."""

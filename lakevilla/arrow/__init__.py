"""Rows in Arrow, as callers have them and as tables store them. Knows no table format."""

"""Cleaning up after clients that will never return: list, fence, delete."""

"""Cleaning up after those who will never come back: list, fence, delete."""

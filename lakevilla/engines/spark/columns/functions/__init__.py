"""Spark's operators and functions by name, each made into the tree that means the same."""

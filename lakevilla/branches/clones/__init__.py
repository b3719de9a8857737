"""Clones as refs: how one ends, and how its tables come to need it no more."""

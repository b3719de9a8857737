"""Explicit-state models of the protocols: every interleaving, with faults, up to small bounds."""

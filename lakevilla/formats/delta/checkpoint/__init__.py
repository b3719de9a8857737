"""Checkpoints of Delta, read in batches."""

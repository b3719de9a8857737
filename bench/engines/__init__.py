"""Engines: Spark's beside its own connector, and what checksums of pages cost."""

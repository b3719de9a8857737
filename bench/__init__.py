"""Benchmarks. Ratios within one run count; absolute times are this machine's."""

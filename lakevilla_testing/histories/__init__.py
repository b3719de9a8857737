"""Histories: drawn, played, judged."""

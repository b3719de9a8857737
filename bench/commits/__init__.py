"""Commits beside those of others: how long they take, who waits for whom, and what is seen."""

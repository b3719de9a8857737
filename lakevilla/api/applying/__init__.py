"""Changes between two states of the lake: shown, taken back, and done again."""

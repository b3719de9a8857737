"""What changed between two states of the lake: told, taken back, and done again."""

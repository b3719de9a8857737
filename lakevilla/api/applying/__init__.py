"""Show, revert and apply the changes between two states of the lake."""

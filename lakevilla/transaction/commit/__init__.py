"""The seven steps of the commit."""

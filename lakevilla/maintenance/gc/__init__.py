"""Clean up after dead clients: list objects, fence transactions, delete garbage."""

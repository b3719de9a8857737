"""The part of the lake that a ref has: its state, table by table, and the objects it needs."""

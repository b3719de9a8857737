"""What a ref has of the lake: its state, table by table, and the objects that this needs."""

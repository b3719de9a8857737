"""What keeps a lake in shape, as its users call it."""

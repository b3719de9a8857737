"""Scale: how the cost of an append, a read and a cold open grows with what is in a lake."""

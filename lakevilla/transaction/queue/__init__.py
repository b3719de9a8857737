"""Places in the queues of tables: taking them, waiting in them, giving them up."""

"""A transaction's places in the queues of tables: take them, wait in them, reserve tables."""

"""Places in the queues of tables: taken, waited in, given up."""

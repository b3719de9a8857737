"""The simulated world: store, clients, schedule, faults."""

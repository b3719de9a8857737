"""What all benchmarks have in common: places, clients, timing, peers, output."""

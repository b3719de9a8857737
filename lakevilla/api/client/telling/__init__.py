"""What a client tells its listener: how far it is, and what takes the time of transactions."""

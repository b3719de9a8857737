"""Whether a transaction may move to a newer HEAD: ``examine`` tells."""

"""What a caller asks of a transaction before its commit."""

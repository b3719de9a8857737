"""The data of one transaction: its state, its operations, its files. It makes no decisions."""

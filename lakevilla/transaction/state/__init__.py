"""The data of one transaction, its record, its files. No decision is taken here."""

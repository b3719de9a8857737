"""What the catalog tables and EXPLAIN tell, as a transaction sees it (docs/design/0035, 0040)."""

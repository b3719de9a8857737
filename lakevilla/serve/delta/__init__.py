"""States of Delta tables, shown to Iceberg clients as tables of theirs."""

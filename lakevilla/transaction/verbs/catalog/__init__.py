"""The rows of the catalog tables, as a transaction sees them (docs/design/0035)."""

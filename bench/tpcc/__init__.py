"""TPC-C: orders of a wholesaler, five transactions on nine tables, after the specification 5.11."""

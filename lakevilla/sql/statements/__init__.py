"""Statements of ``txn.sql``, split into their parts."""

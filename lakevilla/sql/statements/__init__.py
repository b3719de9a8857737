"""Statements of ``txn.sql``, taken apart."""

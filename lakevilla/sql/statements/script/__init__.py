"""Texts of many statements: where each begins and ends, and what those mean that no row is in.

Transactions, tables, refs and upkeep are read here; statements over rows stay what
``lakevilla.sql.statements.statement`` makes of them. It may import that, and no engine.
"""

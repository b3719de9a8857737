"""Texts of many statements: their boundaries, and the meaning of statements that concern no rows.

Statements about transactions, tables, refs and upkeep are read here; statements over rows are
parsed by ``lakevilla.sql.statements.statement``. This package may import that module, and no
engine.
"""

"""What a condition of UPDATE, DELETE and MERGE means beside what the same text means in a SELECT.

A user looks with a SELECT and changes by the same WHERE. Imports the expressions alone.
"""

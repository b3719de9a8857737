"""The meaning of a condition of UPDATE, DELETE and MERGE, compared with its meaning in a SELECT.

A user checks rows with a SELECT and changes them by the same WHERE. Imports the expressions alone.
"""

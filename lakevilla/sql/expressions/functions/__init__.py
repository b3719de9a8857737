"""The operators and functions of the language: their operands, results and meanings.

There is one module for each family, with the types of its functions and their reference meaning;
``catalogue`` has them all. Each has one meaning on every engine, Spark's where engines differ. A
function that cannot have one meaning is left out, and refused by name.
"""

"""The operators and functions of the language: what each takes, gives and means.

One module a family, with the types of its functions and their reference meaning;
``catalogue`` has them all. Each has one meaning on every engine, Spark's where engines
differ; what cannot be given one is left out, and refused by name.
"""

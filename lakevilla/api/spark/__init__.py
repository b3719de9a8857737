"""A lake whose rows are DataFrames of Spark."""

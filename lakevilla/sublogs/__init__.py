"""What a transaction did and how to do it again: operations, records, saved sublogs.

Operations are frozen values that any client can replay on a newer state.
"""

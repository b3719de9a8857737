"""What a transaction did, and how to do it again: logical operations, records, and where they are saved.

Operations are frozen values that any client can replay on a newer state. May
import formats, expressions, store and what stands above them.
"""
